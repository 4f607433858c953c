"""What sequential sampling would have saved, per setting."""

import pandas as pd

from adds.sampling.job import SETTING
from adds.sampling.replay import PAPER_N, PAPER_N0


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
