"""Certificates of all counts of a run, by every bound."""

from collections.abc import Iterable

import pandas as pd

from adds.certificates.certificate import certify
from adds.registry import OPTIONS, Mode
from adds.sampling.job import KEY

COST = ["n0", "n", "stopped", "evaluations", "seconds", "budget_share"]
MADE_BY = ["seed", "guidance_scale", *OPTIONS, "identity", "device_kind", "device"]
VERDICT = ["prediction", "correct", "abstained", "radius", "p_lower", "p_upper"]


def certificates(counts: pd.DataFrame, *, alpha: float, mode: Mode, bounds: Iterable[str]) -> pd.DataFrame:
    """Certify every row of the merged counts by every bound: KEY, bound, the verdict, its cost, what made it.

    Counts whose sampling was stopped by looking at them need bounds that allow for it. ``correct`` is missing where
    an image has no label.
    """
    if mode == "fixed" and (counts["stopped"] != "fixed").any():
        raise ValueError("some counts were sampled sequentially: they can't be certified with mode 'fixed'")
    over = counts[~counts["budget_share"].between(0, 1)]
    if len(over):
        raise ValueError(f"{over[KEY].iloc[0].to_dict()} spent more than its privacy budget: it certifies nothing")
    parts = []
    for bound in bounds:
        found = [
            certify(
                selection=row.counts_selection,
                estimation=row.counts_estimation,
                sigma=row.sigma,
                alpha=alpha,
                mode=mode,
                bound=bound,
            )
            for row in counts.itertuples()
        ]
        fields = pd.DataFrame([vars(certificate) for certificate in found], index=counts.index)
        table = counts.assign(**{name: fields[name] for name in fields}, bound=bound, alpha=alpha)
        correct = table["prediction"].astype("Int64") == table["label"].astype("Int64")
        table["correct"] = correct if correct.isna().any() else correct.astype(bool)
        parts.append(table[[*KEY, "bound", "label", *VERDICT, "alpha", *COST, *MADE_BY]])
    return pd.concat(parts, ignore_index=True)


def by_bound(certified: pd.DataFrame, bound: str) -> pd.DataFrame:
    """Return the certificates by one bound."""
    return certified[certified["bound"] == bound].reset_index(drop=True)
