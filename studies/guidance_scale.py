"""ADDS's guidance scale on images that are for choices.

    python -m studies.guidance_scale weights/fashion --source /usr/share/datasets/fashion-mnist

prints for every sigma and scale the mean probability of the true class, over the first held-out images, and in brackets
its difference to the paper's 0.8: paired over images, with a 95% interval.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from adds.data.images import Examples, Picture, training_of
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.models.weights import made_by
from adds.results.accuracy import mean_interval
from adds.sampling.counting import Request
from adds.sampling.sampler import Sampler
from studies.held_out import load_classifier, load_denoiser

SCALES = (0.8, 0.4, 0.6, 1.0)
"""The first is what the others are compared to."""
STEPS = 20
IMAGES, SAMPLES, AT_ONCE = 100, 8, 32


def load(folder: Path) -> Pipeline:
    """Load published networks, and the paper's grid."""
    denoiser = load_denoiser(folder / "diffusion.safetensors")
    classifier = load_classifier(folder / "classifier.safetensors")
    grid = denoiser.schedule.evenly(STEPS)
    classes = made_by(folder / "classifier.safetensors")["classes"]
    return Pipeline(denoiser, BatchedClassifier(classifier, classes=classes), grid)


def true_class(sampler: Sampler, held_out: Examples) -> NDArray[np.float64]:
    """Return how often each image's samples predict its class."""
    pictures = [
        Picture.of(held_out.images[place], int(held_out.numbers[place]), int(held_out.labels[place]))
        for place in range(IMAGES)
    ]
    right: list[float] = []
    for first in range(0, IMAGES, AT_ONCE):
        some = pictures[first : first + AT_ONCE]
        chunks = sampler.draw([Request(picture, "selection", 0, SAMPLES) for picture in some])
        right += [float((chunk.ballots[:, 0] == p.label).mean()) for chunk, p in zip(chunks, some, strict=True)]
    return np.array(right)


def lines(pipeline: Pipeline, sigmas: list[float], held_out: Examples) -> Iterator[str]:
    """Yield the table's lines."""
    yield f"| sigma | {' | '.join(f's = {scale}' for scale in SCALES)} |"
    yield "|---" * (1 + len(SCALES)) + "|"
    for sigma in sigmas:
        cells, reference = [], None
        for scale in tqdm(SCALES, desc=f"sigma {sigma}", unit="scale"):
            found = true_class(Sampler("adds", pipeline, sigma, guidance_scale=scale), held_out)
            cells.append(f"{100 * found.mean():.1f}")
            if reference is None:
                reference = found
            else:
                cells[-1] += " ({:+.1f} [{:+.1f}, {:+.1f}])".format(
                    *(100 * x for x in mean_interval(found - reference))
                )
        yield f"| {sigma} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="published weights")
    parser.add_argument("--source", type=Path, help="where the images are")
    arguments = parser.parse_args()
    _, held_out = training_of(made_by(arguments.folder / "diffusion.safetensors")["dataset"], arguments.source)
    sigmas = sorted(float(path.stem.partition("-")[2]) for path in arguments.folder.glob("noised-*"))
    with torch.inference_mode():
        for line in lines(load(arguments.folder), sigmas, held_out):
            print(line)


if __name__ == "__main__":
    main()
