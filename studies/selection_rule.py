"""Which rule should end selection: how many samples each takes, and how many certificates it loses.

    python -m studies.selection_rule results/EXPERIMENT

It replays a finished fixed run. Selection is drawn again, many times, from the shares of all of an image's samples;
estimation is replayed from the ledger for the class that most samples fell on. A rule loses an image that this class
would certify at r = 0 (by ``pair``, with the recorded samples) when it selects another one.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.experiment import LEDGERS
from adds.sampling.replay import LOOK_EVERY, QUESTION, Recorded, paper_size

STEPS, LEADS, MOST, REPEATS = (4, 8, 16), (1, 2, 3, 4, 5, 6, 8), 1000, 50


@dataclass(frozen=True)
class Image:
    """One image in one setting: its classes' shares, and whether and after how many samples it was certified."""

    shares: NDArray[np.float64]
    certified: bool
    estimation: int


def images_of(counts: pd.DataFrame, alpha: float) -> Iterator[Image]:
    """Replay the estimation of every image for the class that has most of its samples."""
    recorded, size = Recorded(LEDGERS), paper_size(QUESTION, alpha=alpha)
    for row in counts.itertuples():
        both, classes = np.add(row.counts_selection, row.counts_estimation), recorded(row, "estimation")
        rule = size.estimation_rule(int(both.argmax()), row.sigma)
        reason, n = None, 0
        while reason is None and n < len(classes):
            n += LOOK_EVERY
            reason = rule(np.bincount(classes[:n], minlength=len(both)))
        yield Image(both / both.sum(), reason == "answered", min(n, len(classes)))


def select(shares: NDArray[np.float64], *, step: int, lead: int, rng: np.random.Generator) -> tuple[int, int]:
    """Draw in steps until a class leads by so many; return the class and the samples."""
    counts = np.zeros(len(shares), dtype=np.int64)
    while True:
        counts += rng.multinomial(step, shares)
        second, first = np.sort(counts)[-2:]
        if first - second >= lead or counts.sum() >= MOST:
            return int(counts.argmax()), int(counts.sum())


def lines(images: list[Image]) -> Iterator[str]:
    """Yield the Markdown table of all rules."""
    certified = [image for image in images if image.certified]
    yield f"{len(images)} images and settings, of which {len(certified)} can be certified; {REPEATS} selections each."
    yield ""
    yield "| step | lead | selection samples | of images that can be certified | lost of these, percent |"
    yield "|---|---|---|---|---|"
    for step in STEPS:
        for lead in LEADS:
            rng = np.random.default_rng(0)
            found = [[select(image.shares, step=step, lead=lead, rng=rng) for _ in range(REPEATS)] for image in images]
            samples = np.array([[n for _, n in repeats] for repeats in found])
            chosen = np.array([[winner for winner, _ in repeats] for repeats in found])
            right = chosen == np.array([[image.shares.argmax()] for image in images])
            of_interest = np.array([image.certified for image in images])
            lost = 100 * (1 - right[of_interest].mean())
            yield f"| {step} | {lead} | {samples.mean():.1f} | {samples[of_interest].mean():.1f} | {lost:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--alpha", type=float, default=0.001)
    chosen = parser.parse_args()
    for line in lines(list(images_of(pd.read_parquet(chosen.results / "counts.parquet"), chosen.alpha))):
        print(line, flush=True)
