"""Which rule should end selection: how many samples each takes, and how many certificates it loses.

    python -m studies.selection_rule results/EXPERIMENT

Images are those of a finished run, with the shares of all their samples as probabilities. Selection is drawn from
these, many times. A rule loses an image when it selects another class than the top one, although 10,000 estimation
samples of the top class would certify it at r = 0 (evidence by ``pair`` at the shares).
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import bdtrc

from adds.certificates.betting import log_evidence_of_lead
from adds.registry import PAPER_N, PAPER_N0

Shares = NDArray[np.float64]
Ends = Callable[[int, int], bool]
"""Tells from the first two counts whether selection ends."""

STEPS, LEADS, LEVELS, REPEATS = (8, 16), (4, 5, 6, 7, 8, 12), (0.02, 0.01, 0.005, 0.002), 50


def leads_by(lead: int) -> Ends:
    """Return the rule that waits for a lead of so many samples."""
    return lambda first, second: first - second >= lead


def differs_at(level: float) -> Ends:
    """Return the rule that waits for a difference at a nominal level (one-sided sign test)."""
    return lambda first, second: bool(bdtrc(first - 1, first + second, 0.5) <= level)


def rules() -> dict[str, Ends]:
    """Return all rules that are compared."""
    found = {f"lead of {lead}": leads_by(lead) for lead in LEADS}
    return found | {f"level of {level}": differs_at(level) for level in LEVELS}


def select(shares: Shares, ends: Ends, *, step: int, rng: np.random.Generator) -> tuple[int, int]:
    """Draw in steps until the rule ends it; return the class and the samples."""
    counts = np.zeros(len(shares), dtype=np.int64)
    while True:
        counts += rng.multinomial(step, shares)
        second, first = (int(count) for count in np.sort(counts)[-2:])
        if ends(first, second) or counts.sum() >= PAPER_N0:
            return int(counts.argmax()), int(counts.sum())


def certifiable(shares: Shares, alpha: float) -> bool:
    """Tell whether 10,000 samples with just these shares are evidence enough that the top class leads."""
    second, first = np.round(PAPER_N * np.sort(shares)[-2:])
    return bool(log_evidence_of_lead(first, second) >= -np.log(alpha))


def lines(images: list[Shares], alpha: float) -> Iterator[str]:
    """Yield the Markdown table of all rules."""
    wanted = np.array([certifiable(shares, alpha) for shares in images])
    top = np.array([[shares.argmax()] for shares in images])
    yield f"{len(images)} images and settings, of which {wanted.sum()} can be certified; {REPEATS} selections each."
    yield ""
    yield "| step | ends at a | selection samples | lost of what can be certified, percent |"
    yield "|---|---|---|---|"
    for step in STEPS:
        for name, ends in rules().items():
            rng = np.random.default_rng(0)
            found = np.array([[select(shares, ends, step=step, rng=rng) for _ in range(REPEATS)] for shares in images])
            lost = 100 * (found[wanted, :, 0] != top[wanted]).mean()
            yield f"| {step} | {name} | {found[:, :, 1].mean():.1f} | {lost:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--alpha", type=float, default=0.001)
    chosen = parser.parse_args()
    counts = pd.read_parquet(chosen.results / "counts.parquet")
    both = [np.add(row.counts_selection, row.counts_estimation) for row in counts.itertuples()]
    for line in lines([found / found.sum() for found in both], chosen.alpha):
        print(line, flush=True)
