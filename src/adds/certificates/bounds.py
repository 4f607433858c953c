"""The bounds that turn class counts into radii: one function each, by the names of `adds.registry.BOUNDS`."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from adds.certificates.betting import pair_lower_anytime
from adds.certificates.binomial import clopper_pearson_lower, mixture_lower
from adds.certificates.pair import pair_lower
from adds.registry import BOUNDS, Mode

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Verdict:
    """What a bound says of a class: how far it is certified, unless ``abstained``.

    ``p_lower`` bounds the class's probability from below, ``p_upper`` every other class's from above; NaN where a
    bound has no such numbers.
    """

    abstained: bool
    radius: float
    p_lower: float = math.nan
    p_upper: float = math.nan


class BoundFunction(Protocol):
    """A bound: from the counts of the estimation samples and the selected class to a verdict, true but for alpha."""

    def __call__(self, counts: ArrayLike, prediction: int, *, sigma: float, alpha: float, mode: Mode) -> Verdict:
        """Certify."""


def bound_function(name: str) -> BoundFunction:
    """Return a bound by its name."""
    if name not in BOUNDS:
        raise ValueError(f"bound {name!r} doesn't exist: choose one of {', '.join(BOUNDS)}")
    found: BoundFunction = globals()[name]
    return found


def cohen(counts: ArrayLike, prediction: int, *, sigma: float, alpha: float, mode: Mode) -> Verdict:
    """Cohen et al.'s, the paper's: every other class has at most what the prediction leaves.

    p_lower bounds the prediction's probability from below, by Clopper and Pearson or, in ``sequential`` mode, at all
    times at once; p_upper = 1 - p_lower.
    """
    estimation: Counts = np.asarray(counts, dtype=np.int64)
    p_lower = _share(int(estimation[prediction]), int(estimation.sum()), alpha, mode)
    abstained = not p_lower > 0.5
    radius = 0.0 if abstained else certified_radius(p_lower=p_lower, p_upper=1 - p_lower, sigma=sigma)
    return Verdict(abstained, radius, p_lower, 1 - p_lower)


def pair(counts: ArrayLike, prediction: int, *, sigma: float, alpha: float, mode: Mode) -> Verdict:
    """Test the prediction against the runner-up: r = sigma / 2 delta, for a delta that bounds the lead from below.

    No union over classes is needed. The most probable class other than the prediction is one fixed class, as the
    prediction comes from independent samples. Its count is at most the runner-up's, and delta falls with that count,
    so that delta at the runner-up's count exceeds the true lead only if delta at that class's own count does.
    """
    estimation: Counts = np.asarray(counts, dtype=np.int64)
    top, other = int(estimation[prediction]), int(runner_up(estimation, prediction))
    delta = _lead(top, other, int(estimation.sum()), alpha, mode)
    return Verdict(True, 0.0) if delta is None else Verdict(False, sigma / 2 * delta)


@cache  # many images of a run have the same counts
def _share(top: int, n: int, alpha: float, mode: Mode) -> float:
    return float({"fixed": clopper_pearson_lower, "sequential": mixture_lower}[mode](top, n, alpha))


@cache
def _lead(top: int, other: int, n: int, alpha: float, mode: Mode) -> float | None:
    return {"fixed": pair_lower, "sequential": pair_lower_anytime}[mode](top, other, n, alpha)


def runner_up(counts: Counts, prediction: int) -> Counts:
    """Return the largest count of any class but the prediction ([..., classes] to [...])."""
    others: Counts = np.delete(counts, prediction, axis=-1).max(axis=-1)
    return others


def certified_radius(*, p_lower: float, p_upper: float, sigma: float) -> float:
    """Theorem 3.3: r = sigma / 2 (Phi^-1(p_lower) - Phi^-1(p_upper)), 0 where that is negative."""
    return max(0.0, float(sigma / 2 * (ndtri(p_lower) - ndtri(p_upper))))
