"""The paper's methods, each with a classifier that was trained on its own images.

    python -m studies.own_classifier weights/fashion --source /usr/share/datasets/fashion-mnist --sigma 1.5

A classifier of clean images has seen none of what methods show it, and one that was trained on images denoised in one
step has seen Carlini et al.'s only. So here every method makes images of the same training images, once each, and the
published classifier goes on training on them, in the same way for all. Printed is the mean probability of the true
class over the listed test images, by the clean classifier, by Carlini et al.'s and by the method's own; in brackets the
difference to Carlini et al. with that classifier, in the last column with theirs: paired over images, with a 95%
interval.

Images that methods made are kept, so that a study which was stopped goes on. What was found of every image is left in
``--output``.
"""

import argparse
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm import tqdm

from adds.data.images import Examples, Form, in_unit_interval, reader, training_of
from adds.diffusion.noise import SHARED, Noise
from adds.diffusion.schedule import from_model, to_model
from adds.methods.base import Query, purify
from adds.methods.majority import majority
from adds.methods.release import Subject
from adds.models.pipeline import Pipeline
from adds.models.training import TrainingSettings, train_classifier
from adds.models.weights import made_by
from adds.registry import Stage, Variant, title
from adds.results.accuracy import mean_interval
from studies.guidance_scale import load
from studies.held_out import load_classifier

METHODS = (Variant("carlini", 1), Variant("densepure", 5), Variant("adds", 5), Variant("adds_oneshot", 1))
"""The first is what the others are compared to."""
CLASSIFIERS = {
    "clean": "clean classifier",
    "carlini": "trained on Carlini et al.'s images",
    "own": "trained on the method's own",
}
GUIDANCE_SCALE = 0.8
TRAINING = TrainingSettings(steps=1_000, batch_size=128, learning_rate=2e-4)
IMAGES, SAMPLES, AT_ONCE = 12_000, 16, 256
SEED = 1


@dataclass(frozen=True)
class Purifier:
    """A method at a noise level, with its networks."""

    pipeline: Pipeline
    method: str
    sigma: float

    def shown(self, examples: Examples, *, votes: int, sample: int, stage: Stage) -> NDArray[np.float16]:
        """Return what the classifier sees of each image, in [0, 1]: [n, votes, C, H, W]."""
        query, parts = Query(self.sigma, votes=votes, guidance_scale=GUIDANCE_SCALE), []
        for first in range(0, len(examples), AT_ONCE):
            some = examples[np.arange(first, min(first + AT_ONCE, len(examples)))]
            purified = purify(self.method, self.pipeline, query, self._subject(some, sample, stage))
            assert purified is not None
            images = torch.empty(len(some), votes, *purified.images.shape[1:])
            for vote in query.all_votes:
                cast = (purified.vote == vote) | (purified.vote == SHARED)
                images[purified.owner[cast], vote - 1] = purified.images[cast]
            parts.append(from_model(images).numpy().astype(np.float16))
        return np.concatenate(parts)

    def _subject(self, examples: Examples, sample: int, stage: Stage) -> Subject:
        """Return one sample of each image."""
        number, subjects = torch.tensor([sample]), []
        for image, own in zip(examples.images, examples.numbers.tolist(), strict=True):
            noise = Noise(seed=SEED, stage=stage, image=own, sigma=self.sigma)
            subjects.append(Subject(torch.from_numpy(image), number, noise))
        return Subject.together(subjects)


def kept(path: Path, purifier: Purifier, examples: Examples, *, votes: int, samples: int) -> NDArray[np.float16]:
    """Return so many samples of what a method shows of each image, [samples, n, votes, C, H, W], from disk if there."""
    path.mkdir(parents=True, exist_ok=True)
    stage: Stage = "selection" if samples == 1 else "estimation"
    found = []
    for sample in tqdm(range(samples), desc=path.name, unit="sample"):
        file = path / f"{sample:02d}.npy"
        if not file.exists():
            partial = file.with_suffix(".part.npy")
            np.save(partial, purifier.shown(examples, votes=votes, sample=sample, stage=stage))
            partial.rename(file)
        found.append(np.load(file))
    return np.stack(found)


def trained_on(images: NDArray[np.float16], labels: Examples, clean: nn.Module) -> nn.Module:
    """Return the clean classifier, trained on with images [n, C, H, W] that a method made."""
    examples = Examples(images.astype(np.float32), labels.labels, labels.numbers)
    few = examples[np.arange(min(500, len(examples)))]  # what is logged; nothing is chosen by it
    network, _ = train_classifier(examples, few, settings=TRAINING, seed=SEED, build=lambda: copy.deepcopy(clean))
    return network


def true_class(network: nn.Module, shown: NDArray[np.float16], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how often the majority of the votes is each image's class; shown are [samples, n, votes, C, H, W]."""
    right = np.zeros(len(labels))
    with torch.inference_mode():
        for sample in shown:
            seen = to_model(torch.from_numpy(sample.astype(np.float32))).flatten(0, 1)
            ballots = torch.cat([network(part).argmax(dim=1) for part in seen.split(500)]).numpy()
            right += majority(ballots.reshape(sample.shape[:2])) == labels
    return right / len(shown)


def probabilities(
    pipeline: Pipeline, clean: nn.Module, sigma: float, train: Examples, test: Examples, folder: Path
) -> pd.DataFrame:
    """Return how often each image's class comes out of each method with each of three classifiers.

    Columns: sigma, method, votes, classifier (CLASSIFIERS), number, p_true.
    """
    some = train[np.random.default_rng(SEED).choice(len(train), min(IMAGES, len(train)), replace=False)]
    parts: list[pd.DataFrame] = []
    first: nn.Module | None = None
    for variant in METHODS:
        purifier, name = Purifier(pipeline, variant.method, sigma), f"{variant.method}-sigma{sigma}"
        learned = kept(folder / f"{name}-train", purifier, some, votes=1, samples=1)[0, :, 0]
        shown = kept(folder / f"{name}-test", purifier, test, votes=variant.votes, samples=SAMPLES)
        own = trained_on(learned, some, clean)
        first = first or own
        for classifier, network in zip(CLASSIFIERS, (clean, first, own), strict=True):
            known = {"sigma": sigma, **variant._asdict(), "classifier": classifier}
            p_true = true_class(network, shown, test.labels)
            parts.append(pd.DataFrame({**known, "number": test.numbers, "p_true": p_true}))
    return pd.concat(parts, ignore_index=True)


def lines(found: pd.DataFrame) -> Iterator[str]:
    """Yield the table's lines."""
    yield f"| sigma {found['sigma'].iloc[0]:g} | {' | '.join(CLASSIFIERS.values())} |"
    yield "|---|---|---|---|"
    wide = found.pivot(index="number", columns=["method", "votes", "classifier"], values="p_true")
    for variant in METHODS:
        cells = [_cell(wide, variant, classifier) for classifier in CLASSIFIERS]
        yield f"| {title(*variant)} | {' | '.join(cells)} |"


def _cell(wide: pd.DataFrame, variant: Variant, classifier: str) -> str:
    own, reference = (wide[*one, classifier].to_numpy() for one in (variant, METHODS[0]))
    mean = f"{100 * own.mean():.1f}"
    if variant == METHODS[0]:
        return mean
    return mean + " ({:+.1f} [{:+.1f}, {:+.1f}])".format(*(100 * x for x in mean_interval(own - reference)))


def listed(dataset: str, source: Path | None, path: Path, form: Form) -> Examples:
    """Return the images of a list."""
    rows = pd.read_csv(path)
    stored = in_unit_interval(reader(dataset).read(source, rows, form))
    return Examples(stored, rows["label"].to_numpy(), rows["number"].to_numpy())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="the folder of published weights")
    parser.add_argument("--source", type=Path, help="where the images are")
    parser.add_argument("--list", type=Path, default=Path("config/fashion_250.csv"), help="the test images")
    parser.add_argument("--sigma", type=float, default=1.5)
    parser.add_argument("--keep", type=Path, default=Path("resources/own_classifier"), help="where images are kept")
    parser.add_argument("--output", type=Path, default=Path("docs/fashion/own_classifier.csv"), help="of every image")
    arguments = parser.parse_args()
    recipe = made_by(arguments.weights / "diffusion.safetensors")
    train, _ = training_of(recipe["dataset"], arguments.source)
    unet = recipe["unet"]
    test = listed(
        recipe["dataset"], arguments.source, arguments.list, Form(unet["image_size"], unet["in_channels"], crop=False)
    )
    torch.set_num_threads(1)
    clean = load_classifier(arguments.weights / "classifier.safetensors")
    found = probabilities(load(arguments.weights), clean, arguments.sigma, train, test, arguments.keep)
    found.to_csv(arguments.output, index=False)
    print("\n".join(lines(found)))


if __name__ == "__main__":
    main()
