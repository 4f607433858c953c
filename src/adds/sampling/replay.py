"""What sequential sampling would have needed: the recorded samples of a run, looked at one chunk at a time.

Nothing is drawn. Each image's samples are taken from the ledgers in their order, and the stopping rule is asked
after every few. An image that they don't decide stays open: nobody knows how many it needs, only that it is more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.machine.logs import progress_bar
from adds.registry import PAPER_N, PAPER_N0, Stage, Variant
from adds.sampling.job import KEY
from adds.sampling.ledger import Chunk, Classes, open_recorded
from adds.sampling.stopping import Certified, Question, Rule, SampleSize, Stop
from adds.sampling.votes import predictions_of

LOOK_EVERY = 16
QUESTION = Certified("pair", 0.0)


@dataclass(frozen=True)
class Replay:
    """How many samples sequential sampling used of those that were recorded, and what it found out.

    ``counts`` are the estimation samples' when it stopped; ``reason`` is None where the recorded ones didn't suffice.
    """

    samples: int
    about: int
    counts: NDArray[np.int64]
    reason: str | None


def _look(predictions: Classes, classes: int, rule: Rule, every: int) -> tuple[NDArray[np.int64], str | None]:
    """Count samples until the rule stops; return the counts then and its reason (None: they didn't suffice)."""
    counts = np.zeros(classes, dtype=np.int64)
    for first in range(0, len(predictions), every):
        counts = counts + np.bincount(predictions[first : first + every], minlength=classes)
        reason = rule(counts)
        if reason is not None:
            return counts, reason
    return counts, None


def paper_size(*questions: Question, alpha: float) -> SampleSize:
    """Return the paper's numbers of samples as the most, to be stopped when the questions are answered."""
    return SampleSize(PAPER_N0, PAPER_N, alpha, Stop(questions))


def replay(
    selection: Classes,
    estimation: Classes,
    *,
    classes: int,
    sigma: float,
    size: SampleSize,
    label: int | None = None,
) -> Replay:
    """Look at recorded samples as sequential sampling would have; a label that is asked about needs no selection."""
    about, selected = label, 0
    selected_for: str | None = ""
    if not size.asks_label:
        found, selected_for = _look(selection, classes, size.selection_rule(), size.selection_look(LOOK_EVERY))
        about, selected = int(found.argmax()), int(found.sum())
    if about is None:
        raise ValueError("the questions are about the label: replay needs it")
    counts, reason = _look(estimation, classes, size.estimation_rule(about, sigma), LOOK_EVERY)
    return Replay(selected + int(counts.sum()), about, counts, None if selected_for is None else reason)


def sequence(chunks: Iterable[Chunk], variant: Variant) -> Classes:
    """Return a variant's recorded predictions in the order of their samples, each sample once."""
    parts: list[Classes] = []
    taken = 0
    for chunk in sorted(chunks, key=lambda chunk: chunk.first_sample):
        skipped = taken - chunk.first_sample
        if 0 <= skipped < len(chunk) and (found := predictions_of(variant, chunk)) is not None:
            parts.append(found[0][skipped:])
            taken += len(parts[-1])
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


class Recorded:
    """The recorded predictions that rows of counts counted, in the order of their samples."""

    def __init__(self, store: Path | str) -> None:
        self._ledgers = cache(lambda identity: open_recorded(store, identity))

    def __call__(self, row: Any, stage: Stage) -> Classes:
        """Return them for one row, or say what to do where some are missing."""
        found = (ledger.chunks(row.number, row.pixels, stage) for ledger in self._ledgers(row.identity))
        classes = sequence((chunk for chunks in found for chunk in chunks), Variant(row.method, row.votes))
        counted = row.n0 if stage == "selection" else row.n
        if len(classes) < counted:
            raise LookupError(
                f"image {row.number} has {len(classes)} {stage} samples of {row.method} on record, not the {counted} "
                "that were counted: add --forcerun certify to the command that you ran"
            )
        # Other experiments with the same samples may have recorded more of them.
        return classes[:counted]


def replay_all(counts: pd.DataFrame, certified: pd.DataFrame, store: Path | str, *, alpha: float) -> pd.DataFrame:
    """Replay every image and setting.

    Columns: KEY, samples (missing where not decided), decided, margin_points, certified_by_run, evaluations_per_sample,
    differs. Sampling is to decide r = 0 by the pair bound. The margin is the share of the top class among the
    estimation samples minus the runner-up's. ``certified`` holds the run's own certificates by that bound, from the
    same samples; ``differs`` tells whether the decision is another one: certified or not, and as which class.
    """
    recorded, size = Recorded(store), paper_size(QUESTION, alpha=alpha)
    verdicts = certified.set_index(KEY)
    rows = []
    for row in progress_bar(counts.itertuples(), total=len(counts), desc="replay", unit="image"):
        selection, estimation = recorded(row, "selection"), recorded(row, "estimation")
        found = replay(selection, estimation, classes=len(row.counts_estimation), sigma=row.sigma, size=size)
        verdict = verdicts.loc[(row.method, row.sigma, row.votes, row.number)]
        second, first = np.sort(row.counts_estimation)[-2:]
        whole = None if verdict["abstained"] else verdict["prediction"]
        same = (found.about if found.reason == "answered" else None) == whole
        rows.append(
            {
                **{key: getattr(row, key) for key in KEY},
                "samples": np.nan if found.reason is None else found.samples,
                "decided": found.reason is not None,
                "margin_points": 100 * (first - second) / sum(row.counts_estimation),
                "certified_by_run": not verdict["abstained"],
                "evaluations_per_sample": row.evaluations / (row.n0 + row.n),
                "differs": found.reason is not None and not same,
            }
        )
    return pd.DataFrame(rows)
