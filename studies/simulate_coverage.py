"""Simulated coverage: how often certificates are false when the truth is known, over many images.

Run ``python -m studies.simulate_coverage`` to print the simulated table of docs/coverage.md. An image fails

- by `cohen` as soon as p_lower is above p, which every false certificate implies;
- by `pair` as soon as the certified lead is above the true one, or anything is certified although another class is
  at least as probable as the prediction.

In sequential mode the image's owner cheats: he looks after every chunk and stops the moment that the bound errs in his
favour.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import binom

from adds.certificates.betting import GRID, LARGEST, MAJORITY_WEIGHT, _log_payoffs, log_evidence_of_lead
from adds.certificates.binomial import clopper_pearson_lower, log_evidence_above
from adds.certificates.bounds import runner_up
from adds.certificates.pair import pair_lower
from adds.registry import BOUNDS, Mode

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Truths = NDArray[np.bool_]

LOOK_EVERY, MOST = 32, 2000
BATCH = 2000


@dataclass(frozen=True)
class World:
    """Class probabilities of an image; the prediction is class 0."""

    name: str
    probabilities: tuple[float, ...]

    @property
    def lead(self) -> float:
        """Phi^-1(p) - Phi^-1(q), for the most probable other class's q."""
        return float(ndtri(self.probabilities[0]) - ndtri(max(self.probabilities[1:])))


def _with_lead(lead: float, p: float, rivals: int) -> World:
    """Return a world with that lead, and so many classes that share the rest evenly."""
    q = float(ndtr(ndtri(p) - lead))
    return World(f"{p:.0%} with a lead of {lead:g}", (p, q, *[(1 - p - q) / rivals] * rivals))


WORLDS = (
    *(World(f"two classes, p = {p:g}", (p, 1 - p)) for p in (0.01, 0.3, 0.49, 0.5, 0.501, 0.51, 0.6, 0.9, 0.99)),
    World("three-way tie", (1 / 3, 1 / 3, 1 / 3)),
    World("tie of two among ten", (0.3, 0.3, *[0.05] * 8)),
    World("45% against eleven at 5%", (0.45, *[0.05] * 11)),
    World("ten-way tie", (0.1,) * 10),
    World("fifty-way tie", (0.02,) * 50),
    World("36% against two at 32%", (0.36, 0.32, 0.32)),
    World("20% against sixteen at 5%", (0.2, *[0.05] * 16)),
    _with_lead(0.1, 0.3, 5),
    _with_lead(0.5, 0.4, 10),
    _with_lead(1, 0.45, 20),
    _with_lead(1, 0.65, 1),
)
MANY_CLASSES = World("thousand-way tie", (0.001,) * 1000)


def _batches(images: int) -> Iterator[int]:
    for first in range(0, images, BATCH):
        yield min(BATCH, images - first)


def pair_leads(top: Counts, other: Counts, n: int, alpha: float) -> Array:
    """Return what is certified of every image, minus infinity where nothing is. Equal counts are asked once."""
    distinct, image = np.unique(np.stack([top, other]), axis=1, return_inverse=True)
    found = [pair_lower(int(a), int(b), n, alpha) for a, b in distinct.T]
    leads: Array = np.array([-math.inf if lead is None else lead for lead in found])[image.ravel()]
    return leads


def fixed_failures(world: World, bound: str, *, n: int, images: int, alpha: float, seed: int) -> int:
    """Count the images for which a bound at fixed n is on the wrong side of the truth."""
    rng, failures = np.random.default_rng(seed), 0
    for size in _batches(images):
        counts = rng.multinomial(n, world.probabilities, size=size)
        if bound == "cohen":
            failed = clopper_pearson_lower(counts[:, 0], n, alpha) > world.probabilities[0]
        else:
            certified = pair_leads(counts[:, 0], runner_up(counts, 0), n, alpha)
            failed = certified > world.lead if world.lead > 0 else certified >= 0
        failures += int(failed.sum())
    return failures


def log_evidence_against(step: int, top: Counts, other: Counts, trials: int) -> Array:
    """Return one entry of `adds.certificates.betting.log_evidence_of_leads`, for many images."""
    of_a, of_c, of_other = (log_payoff[step - 1].ravel() for log_payoff in _log_payoffs())
    a, b = top[:, None], other[:, None]
    mixed = logsumexp(a * of_a + b * of_c + (trials - a - b) * of_other, axis=1) - math.log(of_a.size)
    majority = log_evidence_above(ndtr(GRID * step / 2), top, trials)
    return np.logaddexp(math.log1p(-MAJORITY_WEIGHT) + mixed, math.log(MAJORITY_WEIGHT) + majority)


def _pair_is_wrong(lead: float, top: Counts, other: Counts, n: int, alpha: float) -> Truths:
    """Tell where `pair` may certify more than the true lead.

    The grid of leads is walked upwards from the gate and left at the first one that isn't ruled out. So whoever gets
    above the true lead has ruled out the first of the grid that is at or above it: that one is all that has to be
    asked, besides the gate, and its being ruled out is what has probability alpha at most.
    """
    enough = -math.log(alpha)
    certified: Truths = log_evidence_of_lead(top, other) >= enough
    if lead <= 0:
        return certified
    step = math.ceil(lead / GRID - 1e-9)
    if step * GRID > LARGEST:
        return np.zeros_like(certified)
    return certified & (log_evidence_against(step, top, other, n) >= enough)


def sequential_failures(world: World, bound: str, *, images: int, alpha: float, seed: int) -> int:
    """Count the images for which a bound is on the wrong side of the truth at any look."""
    rng, failures = np.random.default_rng(seed), 0
    for size in _batches(images):
        counts = np.zeros((size, len(world.probabilities)), dtype=np.int64)
        failed = np.zeros(size, dtype=bool)
        for n in range(LOOK_EVERY, MOST + 1, LOOK_EVERY):
            counts += rng.multinomial(LOOK_EVERY, world.probabilities, size=size)
            if bound == "cohen":
                failed |= log_evidence_above(world.probabilities[0], counts[:, 0], n) >= -math.log(alpha)
            else:
                failed |= _pair_is_wrong(world.lead, counts[:, 0], runner_up(counts, 0), n, alpha)
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
    cells += [(MANY_CLASSES, "fixed", "pair")]
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
