"""What is measured of every image under every setting, from certificates, counts and denoised images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import bdtrc, ndtri

from adds.certificates.binomial import log_evidence_above
from adds.certificates.certificate import least_certifying_n
from adds.registry import Variant
from adds.results.certified import by_bound, radii_of_first_samples
from adds.sampling.job import KEY, SETTING

PAPERS_BOUND = "cohen"
FAR = 0.5
"""The larger radius that claims about the curve look at, in sigmas."""

EASY = 0.5
"""An image is easy where its label has a larger share than this of the selection samples with one vote."""

COUNT_AGAIN = "add --forcerun certify to the command that you ran: counts are read from the record again"

YES_OR_NO = {"certified", "clean", "abstained"}
"""Measures that are a yes or a no."""

UNITS = {
    "certified": "points",
    "clean": "points",
    "near_only": "points",
    "becomes_certified": "points",
    "certified_error": "points",
    "radius": "sigmas",
    "agreement": "points",
    "top_share": "points",
    "true_share": "points",
    "disagreement": "points",
    "less_noise": "timesteps",
    "log_evaluations": "log",
    "sharpness": "log",
    "distance": "log",
}
"""What differences are told in: points are hundredths of a share, a logarithm's difference is that of a ratio."""


LARGEST = {measure: 1.0 for measure, unit in UNITS.items() if unit == "points"}
"""The largest values of measures that are shares."""


@dataclass(frozen=True)
class Measured:
    """A row per setting, sigma and image (KEY) with a column per measure, and why others are missing.

    ``largest`` are the largest values that measures can have, where there is a limit.
    """

    values: pd.DataFrame
    missing: Mapping[str, str] = field(default_factory=dict)
    largest: Mapping[str, float] = field(default_factory=dict)

    @property
    def sigmas(self) -> list[float]:
        """The run's sigmas, smallest first."""
        return sorted(float(sigma) for sigma in self.values["sigma"].unique())

    @cached_property
    def _by_setting(self) -> dict[tuple[str, float, int], pd.DataFrame]:
        return {setting: rows.set_index("number").sort_index() for setting, rows in self.values.groupby(SETTING)}

    def of(self, variant: Variant, sigma: float) -> pd.DataFrame | None:
        """Return a setting's rows by the images' numbers, or None where it didn't run."""
        return self._by_setting.get((variant.method, sigma, variant.votes))


def measure(
    counts: pd.DataFrame,
    certified: pd.DataFrame,
    *,
    starts: Mapping[float, int],
    questions: Sequence[Mapping[str, object]] | None = None,
    detail: pd.DataFrame | None = None,
) -> Measured:
    """Measure every image.

    ``starts`` is the timestep at which Carlini's method starts, by sigma. ``questions`` are those that sequential
    sampling asked, None for a fixed number of samples. ``detail`` holds sharpness and distance of denoised images.
    Certified is by the paper's bound and right.
    """
    if counts["label"].isna().any():
        return Measured(counts[KEY].copy(), dict.fromkeys(UNITS, "labels of the images"))
    rows = counts.merge(_verdicts(certified), on=KEY, validate="one_to_one")
    rows["selected_true"] = [_share(row.counts_selection, row.label) for row in rows.itertuples()]
    rows["log_evaluations"] = np.log(rows["evaluations"].clip(lower=1) / (rows["n0"] + rows["n"]))
    missing = _unasked(questions)
    if questions is not None:
        _radii_of_first_samples(rows, missing)
    rows["near_only"] = ((rows["radius"] > 0) & (rows["radius"] < FAR)).astype(float)
    _of_first_samples(rows, questions, missing)
    _of_guidance(rows, starts, missing)
    if detail is None:
        missing |= dict.fromkeys(("sharpness", "distance"), "denoised images (the rule `detail`)")
    else:
        logs = detail[KEY].assign(**{name: np.log(detail[name]) for name in ("sharpness", "distance")})
        rows = rows.merge(logs, on=KEY, how="left")
    samples = "counts_estimation" if questions is None or "radius" in missing else "counts_first"
    alpha, most = float(rows["alpha"].iloc[0]), max(map(sum, rows[samples]))
    return Measured(rows, missing, LARGEST | {"radius": float(ndtri(alpha ** (1 / most)))})


def _verdicts(certified: pd.DataFrame) -> pd.DataFrame:
    """Return by the paper's bound: certified, clean, abstained, prediction, and the radius in sigmas."""
    found = by_bound(certified, PAPERS_BOUND)
    right = found["correct"].astype("boolean").fillna(False).astype(bool) & ~found["abstained"]
    radius = found["radius"].where(right, 0.0) / found["sigma"]
    return found[KEY].assign(
        certified=right,
        clean=found["top_correct"].astype("boolean").fillna(False).astype(bool),
        abstained=found["abstained"].astype(bool),
        prediction=found["prediction"],
        radius=radius,
        alpha=found["alpha"],
    )


def _share(counts: Sequence[int], label: int) -> float:
    total = sum(counts)
    return counts[label] / total if total else float("nan")


def _unasked(questions: Sequence[Mapping[str, object]] | None) -> dict[str, str]:
    """Return what sequential sampling didn't ask about: it stops before such an answer is known."""
    if questions is None:
        return {}
    if any(asked.get("bound") == PAPERS_BOUND and asked.get("radius") == 0 for asked in questions):
        return {}
    why = f"the question {{bound: {PAPERS_BOUND}, radius: 0.0}}, or a fixed number of samples"
    return dict.fromkeys(("certified", "becomes_certified", "certified_error"), why)


def _radii_of_first_samples(rows: pd.DataFrame, missing: dict[str, str]) -> None:
    """Put in the place of radii, where sampling stopped by looking, those that every image's first samples give."""
    if "counts_first" not in rows or rows["counts_first"].isna().any():
        missing |= dict.fromkeys(("radius", "near_only"), f"the counts of the first samples: {COUNT_AGAIN}")
        return
    alpha, first = float(rows["alpha"].iloc[0]), min(map(sum, rows["counts_first"]))
    if first < least_certifying_n(alpha):
        why = f"more samples in any case: sampling.stop.at_least of {least_certifying_n(alpha)} or more"
        missing |= dict.fromkeys(("radius", "near_only"), why)
        return
    rows["radius"] = radii_of_first_samples(rows, alpha=alpha, bound=PAPERS_BOUND) / rows["sigma"]


def _of_first_samples(
    rows: pd.DataFrame, questions: Sequence[Mapping[str, object]] | None, missing: dict[str, str]
) -> None:
    """Add shares from the same first estimation samples of every image: all of them where their number is fixed.

    agreement = sum c (c - 1) / (m (m - 1)), the unbiased probability that two samples name the same class; top_share
    that of the class that was selected with other samples; disagreement of a sample's first two ballots.
    """
    column = "counts_estimation" if questions is None else "counts_first"
    if column not in rows or rows[column].isna().any():
        names = ("agreement", "top_share", "true_share")
        missing |= dict.fromkeys(names, f"the counts of the first samples: {COUNT_AGAIN}")
    else:
        classes = [np.asarray(found, dtype=float) for found in rows[column]]
        rows["agreement"] = [float((c * (c - 1)).sum() / max(c.sum() * (c.sum() - 1), 1)) for c in classes]
        selected = [int(np.argmax(found)) for found in rows["counts_selection"]]
        rows["top_share"] = [float(c[top] / c.sum()) for c, top in zip(classes, selected, strict=True)]
        rows["true_share"] = [float(c[label] / c.sum()) for c, label in zip(classes, rows["label"], strict=True)]
    if "ballot_pairs" not in rows:
        missing["disagreement"] = f"the ballots' disagreements: {COUNT_AGAIN}"
    else:
        rows["disagreement"] = rows["ballot_disagreements"] / rows["ballot_pairs"].where(rows["ballot_pairs"] > 0)


def _of_guidance(rows: pd.DataFrame, starts: Mapping[float, int], missing: dict[str, str]) -> None:
    """Add how many timesteps below the start of Carlini's method guidance ends."""
    if "stop_timestep" not in rows:
        missing["less_noise"] = f"the timestep at which the budget is spent: {COUNT_AGAIN}"
    else:
        rows["less_noise"] = rows["sigma"].map(starts) - rows["stop_timestep"]


def changes_by_voting(votes: pd.DataFrame, one: pd.DataFrame) -> pd.DataFrame:
    """Tell of every image what several votes change against one: four yes-or-no columns.

    ``becomes_certified``: an abstention that becomes a right certificate; ``other_change``: another change of right,
    wrong, certified or abstained; ``becomes_wrong``: right with one vote, wrong with several; ``certified_error``: that
    too, and not abstained from with several.
    """
    becomes_certified = one["abstained"] & votes["certified"]
    changed = (one["clean"] != votes["clean"]) | (one["abstained"] != votes["abstained"])
    becomes_wrong = one["clean"] & ~votes["clean"]
    return pd.DataFrame(
        {
            "becomes_certified": becomes_certified,
            "other_change": changed & ~becomes_certified,
            "becomes_wrong": becomes_wrong,
            "certified_error": becomes_wrong & ~votes["abstained"],
        }
    )


def confirmed(rows: pd.DataFrame, seen: "pd.Series[bool]") -> float:
    """Return the p-value that one of the errors that were seen is real.

    The smallest p of a wrong class with k of n samples, times the number of images looked at: P(Bin(n, 1/2) >= k), or
    the anytime-valid 1 / E_n(1/2) where the counts themselves made sampling stop.
    """
    tails = [_by_chance(row) for row in rows[seen].itertuples()]
    return min(1.0, len(rows) * min(tails)) if tails else 1.0


def _by_chance(row: Any) -> float:
    k, n = row.counts_estimation[row.prediction], sum(row.counts_estimation)
    return float(bdtrc(k - 1, n, 0.5) if row.stopped == "fixed" else np.exp(-log_evidence_above(0.5, k, n)))
