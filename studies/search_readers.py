"""Which readers of a release are worth averaging, on the digits that are for choices (test positions 0 to 219).

Run ``python -m studies.search_readers`` where the readers have been made:

    snakemake --cores all --configfile config/digits.yaml config/readers.yaml --until make_reader obtain_classifier

For some consensuses it prints mean p, the share of images with p > 1/2 and the average radius that N samples certify,
from N draws that all readers share; differences in radius are to Bayes' rule for the radius, paired over images, with
95% intervals.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from scipy.special import ndtri
from snakemake.utils import update_config
from torch import Tensor

from adds.certificates.binomial import clopper_pearson_lower
from adds.data.digits import FOR_CHOICES, load_split
from adds.diffusion.noise import Noise
from adds.experiment import Experiment
from adds.methods.base import Query, method
from adds.methods.release import Subject, release
from adds.models.pipeline import Pipeline, load_pipeline
from adds.results.accuracy import mean_interval

Array = NDArray[np.float64]
Weights = Mapping[str, float]

N, ALPHA = 360, 0.001
RADII: Array = ndtri(np.maximum(clopper_pearson_lower(np.arange(N + 1), N, ALPHA), 0.5))
"""What k of N samples certify, in units of sigma."""

REFERENCE = {"bayes_radius": 1.0}
CANDIDATES: list[Weights] = [
    {"rs_trained": 1},
    {"carlini_trained": 1},
    {"bayes": 1},
    REFERENCE,
    {"bayes": 2, "rs_trained": 1},
    {"bayes_radius": 4, "rs_trained": 1},
    {"bayes_radius": 2, "rs_trained": 1},
    {"bayes_radius": 1, "rs_trained": 1},
    {"bayes_radius": 2, "carlini_trained": 1},
    {"bayes_radius": 4, "rs_trained": 1, "carlini_trained": 1},
    {"bayes_radius": 2, "rs_trained": 1, "carlini_trained": 1},
]
READERS = sorted({name for weights in CANDIDATES for name in weights})


def configured() -> Experiment:
    """Read the configuration of the digits with all readers, as Snakemake does."""
    config: dict[str, object] = {}
    for name in ("config", "digits", "readers"):
        update_config(config, yaml.safe_load(Path(f"config/{name}.yaml").read_text()))
    return Experiment.from_config(config)


def load(experiment: Experiment, sigma: str) -> Pipeline:
    """Load the networks of all readers for a sigma."""
    folders: dict[str, Path] = {}
    networks = experiment.networks()
    for name in READERS:
        found = experiment.folders(experiment.setting(name, sigma, 1))
        folders |= {network: Path(folder) for network, folder in found.items()}
        networks |= experiment.networks(name)
    return load_pipeline(networks, {"diffusion": N, "classifier": N}, folders, device=torch.device("cpu"))


def posteriors(pipeline: Pipeline, sigma: float) -> tuple[dict[str, Tensor], Tensor]:
    """Return every reader's probabilities for N releases of each image ([images, N, classes]), and the labels."""
    _, test = load_split()
    found: dict[str, list[Tensor]] = {name: [] for name in READERS}
    for image, number in zip(test.images[:FOR_CHOICES], test.numbers, strict=False):
        noise = Noise(seed=0, stage="estimation", image=int(number), sigma=sigma)
        seen = release(pipeline.denoiser.schedule, Subject(torch.from_numpy(image), torch.arange(N), noise), sigma)
        for name in READERS:
            found[name].append(method(name).posterior(pipeline, Query(sigma), seen))
    return {name: torch.stack(parts) for name, parts in found.items()}, torch.from_numpy(test.labels[:FOR_CHOICES])


def probabilities(parts: Mapping[str, Tensor], labels: Tensor, weights: Weights) -> Array:
    """Return for each image how often the weighted mean of posteriors is right."""
    mean = torch.stack([weight * parts[name] for name, weight in weights.items()]).sum(dim=0)
    return (mean.argmax(dim=2) == labels[:, None]).double().mean(dim=1).numpy()


def lines(experiment: Experiment) -> Iterator[str]:
    """Yield the table."""
    yield "| sigma | readers and weights | p | p > 1/2 | radius | difference |"
    yield "|---|---|---|---|---|---|"
    for text in experiment.sigmas:
        sigma = float(text)
        parts, labels = posteriors(load(experiment, text), sigma)
        reference = sigma * RADII[np.rint(N * probabilities(parts, labels, REFERENCE)).astype(int)]
        for weights in CANDIDATES:
            p = probabilities(parts, labels, weights)
            radii = sigma * RADII[np.rint(N * p).astype(int)]
            difference = mean_interval(radii - reference)
            told = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
            yield (
                f"| {text} | {told} | {100 * p.mean():.1f} | {100 * (p > 0.5).mean():.0f} | {radii.mean():.3f} "
                "| {:+.3f} [{:+.3f}, {:+.3f}] |".format(*difference)
            )


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    for line in lines(configured()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
