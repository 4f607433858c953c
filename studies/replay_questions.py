"""What every question costs and whether its answers are a fixed run's, replayed from what a fixed run recorded.

    python -m studies.replay_questions results/EXPERIMENT

An image that the recorded samples leave open counts with all that the paper's fixed run spends on it, so that the
saving is a lower bound where there are such; the table says how many.

Beside the answers that differ stands how many would in a second fixed run, drawn from the shares of the first: near a
tie no run of 10,000 samples agrees with another one.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.certificates.bounds import bound_function
from adds.certificates.label import label_has_majority
from adds.experiment import LEDGERS
from adds.registry import METHODS, PAPER_N, PAPER_N0
from adds.sampling.replay import Recorded, Replay, paper_size, replay
from adds.sampling.stopping import LABEL_QUESTIONS, Certified, Question

SECOND_RUNS = 20


@dataclass(frozen=True)
class Asked:
    """Questions, and the bound whose answer at r = 0 they stand for: a class, or None where there is no certificate."""

    name: str
    questions: tuple[Question, ...]
    bound: str


ASKED = (
    Asked("pair at r = 0", (Certified("pair", 0.0),), "pair"),
    Asked("cohen at r = 0", (Certified("cohen", 0.0),), "cohen"),
    Asked("pair and cohen at r = 0", (Certified("pair", 0.0), Certified("cohen", 0.0)), "cohen"),
    Asked("the label: majority, and top", tuple(LABEL_QUESTIONS.values()), "cohen"),
)


def fixed_answer(selection: Any, estimation: Any, bound: str, alpha: float) -> int | None:
    """Return the class that a fixed run certifies."""
    chosen = int(np.argmax(selection))
    verdict = bound_function(bound)(estimation, chosen, sigma=1.0, alpha=alpha, mode="fixed")
    return None if verdict.abstained else chosen


def replayed_answer(found: Replay, asked: Asked, alpha: float) -> int | None:
    """Return the class that is certified when sampling ends."""
    if LABEL_QUESTIONS["majority"] in asked.questions:
        n, at_cap = int(found.counts.sum()), found.reason == "cap"
        proved = label_has_majority(int(found.counts[found.about]), n, alpha, at_fixed_cap=at_cap)
        return found.about if proved else None
    verdict = bound_function(asked.bound)(found.counts, found.about, sigma=1.0, alpha=alpha, mode="sequential")
    return None if verdict.abstained else found.about


def second_run(row: Any, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the counts of another fixed run from the shares of the first."""
    both = np.add(row.counts_selection, row.counts_estimation)
    shares = both / both.sum()
    return rng.multinomial(row.n0, shares), rng.multinomial(row.n, shares)


def rows_of(counts: pd.DataFrame, asked: Asked, alpha: float) -> Iterator[dict[str, Any]]:
    """Replay all images and settings."""
    recorded, size, rng = Recorded(LEDGERS), paper_size(*asked.questions, alpha=alpha), np.random.default_rng(0)
    by_label = size.asks_label
    for row in counts.itertuples():
        classes, label = len(row.counts_estimation), int(row.label)
        found = replay(
            recorded(row, "selection"),
            recorded(row, "estimation"),
            classes=classes,
            sigma=row.sigma,
            size=size,
            label=label,
        )

        def judged(answer: int | None, label: int = label) -> int | bool | None:
            return answer == label if by_label else answer

        fixed = judged(fixed_answer(row.counts_selection, row.counts_estimation, asked.bound, alpha))
        others = [judged(fixed_answer(*second_run(row, rng), asked.bound, alpha)) for _ in range(SECOND_RUNS)]
        yield {
            "sigma": row.sigma,
            "samples": PAPER_N0 + PAPER_N if found.reason is None else found.samples,
            "evaluations": row.evaluations / (row.n0 + row.n) if "diffusion" in METHODS[row.method].networks else 0.0,
            "open": found.reason is None,
            "differs": judged(replayed_answer(found, asked, alpha)) != fixed,
            "second": np.mean([other != fixed for other in others]),
            "top_differs": int(found.counts.argmax())
            != int(np.argmax(np.add(row.counts_selection, row.counts_estimation))),
        }


def lines(counts: pd.DataFrame, alpha: float) -> Iterator[str]:
    """Yield the Markdown table."""
    yield f"{counts['number'].nunique()} images, {len(counts)} images and settings, alpha = {alpha}."
    yield ""
    yield "| question | samples, mean | median | saved | open | answers that differ | in a second fixed run |"
    yield "|---|---|---|---|---|---|---|"
    for asked in ASKED:
        found = pd.DataFrame(rows_of(counts, asked, alpha))
        whole = (PAPER_N0 + PAPER_N) * found["evaluations"].sum()
        saved = whole / (found["samples"] * found["evaluations"]).sum()
        yield (
            f"| {asked.name} | {found['samples'].mean():,.0f} | {found['samples'].median():,.0f} | {saved:,.0f}x "
            f"| {found['open'].sum()} | {found['differs'].sum()} | {found['second'].sum():.1f} |"
        )
        if asked.questions == ASKED[-1].questions:
            yield ""
            yield f"By the label's questions {found['top_differs'].sum()} top classes differ from the fixed run's."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--alpha", type=float, default=0.001)
    chosen = parser.parse_args()
    for line in lines(pd.read_parquet(chosen.results / "counts.parquet"), chosen.alpha):
        print(line, flush=True)
