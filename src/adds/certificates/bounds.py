"""The bounds that turn class counts into radii: one function each, by the names of `adds.registry.BOUNDS`."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from adds.certificates.binomial import (
    Array,
    clopper_pearson_lower,
    clopper_pearson_upper,
    mixture_lower,
    mixture_upper,
)
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
    """Cohen et al.'s, the paper's: every other class has at most what the prediction leaves."""
    return _verdict(counts, prediction, sigma=sigma, alpha=alpha, mode=mode, bound="cohen")


def two_sided(counts: ArrayLike, prediction: int, *, sigma: float, alpha: float, mode: Mode) -> Verdict:
    """Bound the other classes too, so that an image can be certified without a majority."""
    return _verdict(counts, prediction, sigma=sigma, alpha=alpha, mode=mode, bound="two_sided")


def _verdict(counts: ArrayLike, prediction: int, *, sigma: float, alpha: float, mode: Mode, bound: str) -> Verdict:
    bounds = probability_bounds(counts, prediction, alpha=alpha, mode=mode, bound=bound)
    p_lower, p_upper = (float(value) for value in bounds)
    abstained = not p_lower > p_upper
    radius = 0.0 if abstained else certified_radius(p_lower=p_lower, p_upper=p_upper, sigma=sigma)
    if not math.isfinite(radius):
        raise ValueError(f"the radius is {radius}: p_lower is {p_lower} and p_upper is {p_upper}")
    return Verdict(abstained, radius, p_lower, p_upper)


def runner_up(counts: Counts, prediction: int) -> Counts:
    """Return the largest count of any class but the prediction ([..., classes] to [...])."""
    others: Counts = np.delete(counts, prediction, axis=-1).max(axis=-1)
    return others


def probability_bounds(
    estimation: ArrayLike, prediction: int, *, alpha: float, mode: Mode, bound: str
) -> tuple[Array, Array]:
    """Return p_lower for the prediction and p_upper for every other class: both hold with probability 1 - alpha.

    ``estimation`` are class counts, or rows of them ([..., classes]) that share the prediction.

    ``cohen`` bounds the prediction from below, and the others by what that leaves them: p_upper = 1 - p_lower.

    ``two_sided`` bounds the others themselves. No union bound over classes is needed. Let c be the most
    probable class other than the prediction: it is one fixed class, as the prediction comes from independent
    samples. Its count is at most the runner-up's, and the bound grows with the count, so the bound at the
    runner-up's count is below p_c only if the bound at c's own count is, which has probability alpha / 2. The
    bound on the prediction takes the other alpha / 2, and 1 - p_lower still bounds the others when it holds.

    In ``sequential`` mode the bounds hold at all times at once, and the argument is the same: c is fixed, and
    its sequence fails at any time with probability at most alpha / 2. Both bounds are then the same halves.
    """
    counts: Counts = np.asarray(estimation, dtype=np.int64)
    n, top = counts.sum(axis=-1), counts[..., prediction]
    lower, upper = {
        "fixed": (clopper_pearson_lower, clopper_pearson_upper),
        "sequential": (mixture_lower, mixture_upper),
    }[mode]
    whole = bound == "cohen" and mode == "fixed"
    p_lower = lower(top, n, alpha if whole else alpha / 2)
    if bound == "cohen":
        return p_lower, 1 - p_lower
    return p_lower, np.minimum(upper(runner_up(counts, prediction), n, alpha / 2), 1 - p_lower)


def certified_radius(*, p_lower: float, p_upper: float, sigma: float) -> float:
    """Theorem 3.3: r = sigma / 2 (Phi^-1(p_lower) - Phi^-1(p_upper)), 0 where that is negative."""
    return max(0.0, float(sigma / 2 * (ndtri(p_lower) - ndtri(p_upper))))
