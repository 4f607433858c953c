"""What sequential sampling needs of the samples that a fixed run spends, per setting."""

import pandas as pd

from adds.registry import PAPER_N, PAPER_N0
from adds.sampling.job import SETTING


def saving_table(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return per setting the median samples of decided images, and how many are open.

    ``open_certified_by_run`` counts open images that the run itself certifies from the same samples.
    """
    rows = replayed.assign(
        open=~replayed["decided"], open_certified_by_run=~replayed["decided"] & replayed["certified_by_run"]
    )
    grouped = rows.groupby(SETTING)
    return pd.DataFrame(
        {
            "images": grouped.size(),
            "decided": grouped["decided"].sum(),
            "median_samples": grouped["samples"].median(),
            "fixed_samples": PAPER_N0 + PAPER_N,
            "evaluations_per_sample": grouped["evaluations_per_sample"].mean(),
            "open": grouped["open"].sum(),
            "open_certified_by_run": grouped["open_certified_by_run"].sum(),
            "differs": grouped["differs"].sum(),
        }
    ).reset_index()


def saving_note(table: pd.DataFrame, alpha: float) -> str:
    """Say how to read the table, and what it comes to over all settings."""
    points, still_open, by_run = (int(table[name].sum()) for name in ("images", "open", "open_certified_by_run"))
    decided = points - still_open
    text = (
        "Median samples, selection and estimation, that sequential sampling needs to decide r = 0 (bound pair, "
        f"alpha = {alpha:g}) for the images that it decides; the paper's fixed run spends {PAPER_N0 + PAPER_N:,} on "
        "each."
    )
    if still_open:
        text += (
            f" In brackets images that this run's samples leave open, {still_open} of {points} in all. This run's own "
            f"certificates by pair certify {by_run} of them, from the very same samples."
        )
    if decided:
        text += f" Decisions that differ from this run's: {int(table['differs'].sum())} of {decided}."
    return text
