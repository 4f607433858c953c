"""Simulated coverage: how often certificates are false when the truth is known, over many images.

Run ``python -m studies.simulate_coverage`` to print the table of docs/coverage.md. An image counts as false as soon as
either end of its bounds is on the wrong side of the truth, which every false certificate implies. In sequential mode
its owner cheats: he looks after every chunk and stops the moment that the bounds err in his favour.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from adds.certificates.binomial import log_evidence_above
from adds.certificates.bounds import probability_bounds, runner_up
from adds.registry import BOUNDS, Mode

LOOK_EVERY, MOST = 32, 2000
BATCH = 2000


@dataclass(frozen=True)
class World:
    """Class probabilities of an image; the prediction is class 0."""

    name: str
    probabilities: tuple[float, ...]


WORLDS = (
    *(World(f"two classes, p = {p:g}", (p, 1 - p)) for p in (0.01, 0.3, 0.49, 0.5, 0.501, 0.51, 0.6, 0.9, 0.99)),
    World("three-way tie", (1 / 3, 1 / 3, 1 / 3)),
    World("tie of two among ten", (0.3, 0.3, *[0.05] * 8)),
    World("45% against eleven at 5%", (0.45, *[0.05] * 11)),
    World("ten-way tie", (0.1,) * 10),
    World("fifty-way tie", (0.02,) * 50),
)
MANY_CLASSES = World("thousand-way tie", (0.001,) * 1000)


def fixed_failures(world: World, bound: str, *, n: int, images: int, alpha: float, seed: int) -> int:
    """Count the images for which a bound at fixed n is on the wrong side of the truth."""
    rng = np.random.default_rng(seed)
    p, other, failures = world.probabilities[0], max(world.probabilities[1:]), 0
    for first in range(0, images, BATCH):
        counts = rng.multinomial(n, world.probabilities, size=min(BATCH, images - first))
        lower, upper = probability_bounds(counts, 0, alpha=alpha, mode="fixed", bound=bound)
        failures += int(((lower > p) | (upper < other)).sum())
    return failures


def _ruled_out(p: float, successes: NDArray[np.int64], trials: int, alpha: float) -> NDArray[np.bool_]:
    """Tell where the lower confidence sequence is above p."""
    return np.asarray(log_evidence_above(p, successes, trials) >= -np.log(alpha))


def sequential_failures(world: World, bound: str, *, images: int, alpha: float, seed: int) -> int:
    """Count the images for which a bound is on the wrong side of the truth at any look."""
    rng = np.random.default_rng(seed)
    p, other, failures = world.probabilities[0], max(world.probabilities[1:]), 0
    for first in range(0, images, BATCH):
        size = min(BATCH, images - first)
        counts = np.zeros((size, len(world.probabilities)), dtype=np.int64)
        failed = np.zeros(size, dtype=bool)
        for n in range(LOOK_EVERY, MOST + 1, LOOK_EVERY):
            counts += rng.multinomial(LOOK_EVERY, world.probabilities, size=size)
            failed |= _ruled_out(p, counts[:, 0], n, alpha / 2)
            if bound == "two_sided":
                failed |= _ruled_out(1 - other, n - runner_up(counts, 0), n, alpha / 2)
        failures += int(failed.sum())
    return failures


def lines(images: int, alpha: float) -> Iterator[str]:
    """Yield the Markdown table of all worlds, modes and bounds, a line as soon as it is known."""
    limit = int(binom.ppf(0.9999, images, alpha))
    yield (
        f"{images:,} simulated images per cell, alpha = {alpha}: at the worst rate that is allowed "
        f"{alpha * images:g} failures are expected, and more than {limit} have probability below 0.0001."
    )
    yield ""
    yield "| world | mode | bound | failures | rate | within |"
    yield "|---|---|---|---|---|---|"
    cells: list[tuple[World, Mode, str]] = [
        (world, mode, bound) for world in WORLDS for mode in ("fixed", "sequential") for bound in BOUNDS
    ]
    cells += [(MANY_CLASSES, "fixed", "two_sided")]
    for seed, (world, mode, bound) in enumerate(cells):
        if mode == "fixed":
            failures = fixed_failures(world, bound, n=1000, images=images, alpha=alpha, seed=seed)
        else:
            failures = sequential_failures(world, bound, images=images, alpha=alpha, seed=seed)
        verdict = "yes" if failures <= limit else "NO"
        yield f"| {world.name} | {mode} | {bound} | {failures} | {failures / images:.5f} | {verdict} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000, help="simulated images per cell")
    parser.add_argument("--alpha", type=float, default=0.001)
    for line in lines(**vars(parser.parse_args())):
        print(line, flush=True)
