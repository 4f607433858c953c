"""What sequential sampling would have saved: the recorded samples of a fixed run, looked at one chunk at a time.

Nothing is drawn. Each image's samples are taken from the ledgers in their order, and the stopping rule is asked
after every few. An image that the recorded samples don't decide counts as if sequential sampling had needed
everything that the paper's fixed run spends on it, so the saving is never overstated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.ledger import Chunk, Classes, Ledger, read_identity
from adds.naming import Stage
from adds.results import KEY, SETTING
from adds.stopping import Rule, SampleSize, Stop
from adds.tally import own_predictions

PAPER_N0, PAPER_N = 1000, 10_000
LOOK_EVERY = 16


@dataclass(frozen=True)
class Replay:
    """How many samples sequential sampling used of those that were recorded, and whether they sufficed."""

    samples: int
    decided: bool
    prediction: int
    certified: bool


def _look(predictions: Classes, classes: int, rule: Rule) -> tuple[NDArray[np.int64], str | None]:
    """Count samples until the rule stops; return the counts then and its reason (None: they didn't suffice)."""
    counts = np.zeros(classes, dtype=np.int64)
    for first in range(0, len(predictions), LOOK_EVERY):
        counts = counts + np.bincount(predictions[first : first + LOOK_EVERY], minlength=classes)
        reason = rule(counts)
        if reason is not None:
            return counts, reason
    return counts, None


def replay(selection: Classes, estimation: Classes, *, classes: int, sigma: float, alpha: float) -> Replay:
    """Decide at r = 0 by the two-sided bound, with at most the paper's numbers of samples."""
    size = SampleSize(PAPER_N0, PAPER_N, alpha, Stop(rule="radii", radii=(0.0,), bound="two_sided"))
    selected, selected_for = _look(selection, classes, size.selection_rule())
    prediction = int(selected.argmax())
    counts, reason = _look(estimation, classes, size.estimation_rule(prediction, sigma))
    decided = selected_for is not None and reason is not None
    return Replay(int(selected.sum() + counts.sum()), decided, prediction, reason == "decided")


def open_recorded(folder: Path | str, hashes: set[str]) -> list[Ledger]:
    """Open the ledgers of the runs with these identities."""
    files = [file for file in sorted(Path(folder).glob("*/*.jsonl")) if file.stem.split("-")[-1] in hashes]
    identities = {file: read_identity(file) for file in files}
    return [Ledger(file, identity, read_only=True) for file, identity in identities.items() if identity]


def sequence(chunks: Iterable[Chunk], method: str, votes: int) -> Classes:
    """Return a method's recorded predictions in the order of their samples, each sample once."""
    parts: list[Classes] = []
    drawn = 0
    for chunk in sorted(chunks, key=lambda chunk: chunk.first_sample):
        found = own_predictions(chunk, method, votes)
        skipped = drawn - chunk.first_sample
        if found is not None and 0 <= skipped < len(chunk):
            parts.append(found[0][skipped:])
            drawn += len(parts[-1])
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


def replay_all(counts: pd.DataFrame, certified: pd.DataFrame, folder: Path | str, *, alpha: float) -> pd.DataFrame:
    """Replay every image and setting: KEY, samples, decided, p_top, evaluations_per_sample, differs.

    ``certified`` holds the fixed run's certificates by the two-sided bound; ``differs`` tells whether the
    decision at r = 0 is another one.
    """
    ledgers = open_recorded(folder, set(counts["identity"]))
    by_sigma: dict[float, list[Ledger]] = {}
    for ledger in ledgers:
        by_sigma.setdefault(ledger.identity["sigma"], []).append(ledger)
    verdicts = certified.set_index(KEY)
    rows = []
    for row in counts.itertuples():

        def recorded(stage: Stage, row: pd.Series = row) -> Classes:
            chunks = [
                chunk for ledger in by_sigma.get(row.sigma, []) for chunk in ledger.chunks(row.index_, stage)
            ]
            return sequence(chunks, row.method, row.votes)

        found = replay(
            recorded("selection"),
            recorded("estimation"),
            classes=len(row.counts_estimation),
            sigma=row.sigma,
            alpha=alpha,
        )
        verdict = verdicts.loc[(row.method, row.sigma, row.votes, row.index_)]
        same = (found.prediction, found.certified) == (verdict["prediction"], not verdict["abstained"])
        rows.append(
            {
                "method": row.method,
                "sigma": row.sigma,
                "votes": row.votes,
                "index": row.index_,
                "samples": found.samples if found.decided else PAPER_N0 + PAPER_N,
                "decided": found.decided,
                "p_top": max(row.counts_estimation) / sum(row.counts_estimation),
                "evaluations_per_sample": row.evaluations / (row.n0 + row.n),
                "differs": found.decided and not same,
            }
        )
    return pd.DataFrame(rows)


def saving_table(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return per setting: evaluations of the fixed run over those of sequential sampling, and what stayed open."""
    grouped = replayed.groupby(SETTING)
    return pd.DataFrame(
        {
            "images": grouped.size(),
            "mean_samples": grouped["samples"].mean(),
            "fixed_samples": PAPER_N0 + PAPER_N,
            "evaluations_per_sample": grouped["evaluations_per_sample"].mean(),
            "saving": (PAPER_N0 + PAPER_N) / grouped["samples"].mean(),
            "open": grouped["decided"].apply(lambda decided: int((~decided).sum())),
            "differs": grouped["differs"].sum(),
        }
    ).reset_index()
