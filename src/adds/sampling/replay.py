"""What sequential sampling would have saved: the recorded samples of a fixed run, looked at one chunk at a time.

Nothing is drawn. Each image's samples are taken from the ledgers in their order, and the stopping rule is asked
after every few. An image that the recorded samples don't decide counts as if sequential sampling had needed
everything that the paper's fixed run spends on it, so the saving is never overstated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.registry import Stage, Variant
from adds.sampling.job import KEY
from adds.sampling.ledger import Chunk, Classes, open_recorded
from adds.sampling.stopping import Certified, Rule, SampleSize, Stop
from adds.sampling.votes import predictions_of

PAPER_N0, PAPER_N = 1000, 10_000
LOOK_EVERY = 16
QUESTION = Certified("pair", 0.0)


@dataclass(frozen=True)
class Replay:
    """How many samples sequential sampling used of those that were recorded, and whether they sufficed."""

    samples: int
    decided: bool
    prediction: int
    certified: bool


def _look(predictions: Classes, classes: int, rule: Rule, every: int) -> tuple[NDArray[np.int64], str | None]:
    """Count samples until the rule stops; return the counts then and its reason (None: they didn't suffice)."""
    counts = np.zeros(classes, dtype=np.int64)
    for first in range(0, len(predictions), every):
        counts = counts + np.bincount(predictions[first : first + every], minlength=classes)
        reason = rule(counts)
        if reason is not None:
            return counts, reason
    return counts, None


def replay(selection: Classes, estimation: Classes, *, classes: int, sigma: float, alpha: float) -> Replay:
    """Decide at r = 0 by the pair bound, with at most the paper's numbers of samples."""
    size = SampleSize(PAPER_N0, PAPER_N, alpha, Stop([QUESTION]))
    selected, selected_for = _look(selection, classes, size.selection_rule(), size.selection_look(LOOK_EVERY))
    prediction = int(selected.argmax())
    counts, reason = _look(estimation, classes, size.estimation_rule(prediction, sigma), LOOK_EVERY)
    decided = selected_for is not None and reason is not None
    return Replay(int(selected.sum() + counts.sum()), decided, prediction, reason == "answered")


def sequence(chunks: Iterable[Chunk], variant: Variant) -> Classes:
    """Return a variant's recorded predictions in the order of their samples, each sample once."""
    parts: list[Classes] = []
    taken = 0
    for chunk in sorted(chunks, key=lambda chunk: chunk.first_sample):
        found = predictions_of(variant, chunk)
        skipped = taken - chunk.first_sample
        if found is not None and 0 <= skipped < len(chunk):
            parts.append(found[0][skipped:])
            taken += len(parts[-1])
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


def replay_all(counts: pd.DataFrame, certified: pd.DataFrame, store: Path | str, *, alpha: float) -> pd.DataFrame:
    """Replay every image and setting: KEY, samples, decided, p_top, evaluations_per_sample, differs.

    ``certified`` holds the fixed run's certificates by the pair bound; ``differs`` tells whether the decision at
    r = 0 is another one: certified or not, and as which class.
    """
    ledgers = cache(lambda identity: open_recorded(store, identity))
    verdicts = certified.set_index(KEY)
    rows = []
    for row in counts.itertuples():

        def recorded(stage: Stage, row: pd.Series = row) -> Classes:
            found = (ledger.chunks(row.number, row.pixels, stage) for ledger in ledgers(row.identity))
            return sequence((chunk for chunks in found for chunk in chunks), Variant(row.method, row.votes))

        selection, estimation = recorded("selection"), recorded("estimation")
        if len(selection) < row.n0 or len(estimation) < row.n:
            raise LookupError(
                f"image {row.number} has {len(selection)} + {len(estimation)} samples of {row.method} on record, not "
                f"the {row.n0} + {row.n} that were counted: add --forcerun certify to the command that you ran"
            )
        found = replay(
            selection,
            estimation,
            classes=len(row.counts_estimation),
            sigma=row.sigma,
            alpha=alpha,
        )
        verdict = verdicts.loc[(row.method, row.sigma, row.votes, row.number)]
        whole = None if verdict["abstained"] else verdict["prediction"]
        same = (found.prediction if found.certified else None) == whole
        rows.append(
            {
                **{key: getattr(row, key) for key in KEY},
                "samples": found.samples if found.decided else PAPER_N0 + PAPER_N,
                "decided": found.decided,
                "p_top": max(row.counts_estimation) / sum(row.counts_estimation),
                "evaluations_per_sample": row.evaluations / (row.n0 + row.n),
                "differs": found.decided and not same,
            }
        )
    return pd.DataFrame(rows)
