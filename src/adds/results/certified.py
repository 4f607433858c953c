"""Certificates of all counts of a run, by every bound."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from adds.certificates.certificate import Certificate, certify, certify_label
from adds.machine.logs import progress_bar
from adds.registry import LABEL, OPTIONS, Mode
from adds.sampling.job import KEY

COST = ["n0", "n", "stopped", "evaluations", "seconds", "budget_share"]
MADE_BY = ["seed", "guidance_scale", *OPTIONS, "identity", "device_kind", "device"]
VERDICT = ["prediction", "correct", "top", "top_correct", "abstained", "radius", "p_lower", "p_upper"]


def certificates(counts: pd.DataFrame, *, alpha: float, mode: Mode, bounds: Iterable[str]) -> pd.DataFrame:
    """Certify every row of the merged counts by every bound: KEY, bound, the verdict, its cost, what made it.

    Counts whose sampling was stopped by looking at them need bounds that allow for it. ``prediction`` is what the
    certificate is about, ``top`` the class with most of all samples, selection and estimation: sequential sampling
    selects with few, which costs certificates nothing, but accuracy. ``correct`` and ``top_correct`` are missing where
    an image has no label.
    """
    if mode == "fixed" and (counts["stopped"] != "fixed").any():
        raise ValueError("some counts were sampled sequentially: they can't be certified with mode 'fixed'")
    over = counts[~counts["budget_share"].between(0, 1)]
    if len(over):
        raise ValueError(f"{over[KEY].iloc[0].to_dict()} spent more than its privacy budget: it certifies nothing")
    parts = []
    samples = zip(counts["counts_selection"], counts["counts_estimation"], strict=True)
    top = [int(np.argmax(np.add(*both))) for both in samples]
    for bound in bounds:
        rows = progress_bar(counts.itertuples(), total=len(counts), desc=bound, unit="certificate")
        found = [_certificate(row, alpha=alpha, mode=mode, bound=bound) for row in rows]
        fields = pd.DataFrame([vars(certificate) for certificate in found], index=counts.index)
        table = counts.assign(**{name: fields[name] for name in fields}, top=top, bound=bound, alpha=alpha)
        table["correct"] = _is_label(table["prediction"], table["label"])
        table["top_correct"] = _is_label(table["top"], table["label"])
        parts.append(table[[*KEY, "bound", "label", *VERDICT, "alpha", *COST, *MADE_BY]])
    return pd.concat(parts, ignore_index=True)


def _certificate(row: Any, *, alpha: float, mode: Mode, bound: str) -> Certificate:
    if bound == LABEL:
        at_fixed_cap = row.stopped == "cap"
        return certify_label(
            label=int(row.label), estimation=row.counts_estimation, alpha=alpha, at_fixed_cap=at_fixed_cap
        )
    return certify(
        selection=row.counts_selection,
        estimation=row.counts_estimation,
        sigma=row.sigma,
        alpha=alpha,
        mode=mode,
        bound=bound,
    )


def _is_label(found: "pd.Series[int]", label: "pd.Series[int]") -> "pd.Series[bool]":
    right = found.astype("Int64") == label.astype("Int64")
    return right if right.isna().any() else right.astype(bool)


def by_bound(certified: pd.DataFrame, bound: str) -> pd.DataFrame:
    """Return the certificates by one bound."""
    return certified[certified["bound"] == bound].reset_index(drop=True)


def radii_of_first_samples(counts: pd.DataFrame, *, alpha: float, bound: str) -> "pd.Series[float]":
    """Return the radius that each image's first estimation samples certify, 0 where wrong or abstained from.

    How many they are was fixed beforehand, so that a bound for a fixed number holds for them. Where sampling stops by
    looking, radii at its end tell rather when it stopped.
    """
    found = [
        certify(
            selection=row.counts_selection,
            estimation=row.counts_first,
            sigma=row.sigma,
            alpha=alpha,
            bound=bound,
        )
        for row in counts.itertuples()
    ]
    right = [one.prediction == label for one, label in zip(found, counts["label"], strict=True)]
    radii = [one.radius if correct else 0.0 for one, correct in zip(found, right, strict=True)]
    return pd.Series(radii, index=counts.index)
