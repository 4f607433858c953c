"""From class counts to certificates: Cohen et al.'s procedure and Theorem 3.3 of the paper."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from adds.confidence import Array, clopper_pearson_lower, clopper_pearson_upper, mixture_lower, mixture_upper
from adds.stopping import Bound, runner_up

Mode = Literal["fixed", "sequential"]


@dataclass(frozen=True)
class Certificate:
    """What is known of one image. ``radius`` is in [0, 1] pixel units and 0 where the method abstains.

    With probability 1 - alpha over the samples: the smoothed classifier's class is ``prediction``, and stays
    so for every change of the image with l2 norm below ``radius``, unless ``abstained``.
    """

    prediction: int
    abstained: bool
    radius: float
    p_lower: float
    p_upper: float


@lru_cache
def least_certifying_n(alpha: float, *, mode: Mode = "fixed", bound: Bound = "cohen") -> int:
    """Return the smallest n for which n successes of n can certify anything."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: it must be between 0 and 1")
    n = 1
    while not bool(probability_bounds([n, 0], 0, alpha=alpha, mode=mode, bound=bound)[0] > 0.5):
        n += 1
    return n


def check_samples(*, n0: int, n: int, alpha: float, mode: Mode = "fixed", bound: Bound = "cohen") -> None:
    """Refuse sample sizes with which nothing could ever be certified."""
    least = least_certifying_n(alpha, mode=mode, bound=bound)
    if n0 < 1:
        raise ValueError(f"n0 is {n0}: at least 1 selection sample is needed")
    if n < least:
        raise ValueError(
            f"n is {n}: with alpha = {alpha} even {n} of {n} samples can't certify anything, "
            f"n must be at least {least}"
        )


def probability_bounds(
    estimation: ArrayLike, prediction: int, *, alpha: float, mode: Mode, bound: Bound
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
    counts = np.asarray(estimation, dtype=np.int64)
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


def certify(
    *,
    selection: Sequence[int],
    estimation: Sequence[int],
    sigma: float,
    alpha: float,
    mode: Mode = "fixed",
    bound: Bound = "cohen",
) -> Certificate:
    """Certify from class counts of two independent sets of samples (Cohen et al., CERTIFY).

    The selection samples name the class; the estimation samples bound its probability and the others'.
    Abstain where the class isn't sure to be the most probable one.
    """
    if len(selection) != len(estimation):
        raise ValueError(
            f"selection counts {len(selection)} classes and estimation {len(estimation)}: they must agree"
        )
    if mode == "fixed":
        check_samples(n0=int(sum(selection)), n=int(sum(estimation)), alpha=alpha, bound=bound)
    prediction = int(np.argmax(selection))
    bounds = probability_bounds(estimation, prediction, alpha=alpha, mode=mode, bound=bound)
    p_lower, p_upper = (float(value) for value in bounds)
    abstained = not p_lower > p_upper
    radius = 0.0 if abstained else certified_radius(p_lower=p_lower, p_upper=p_upper, sigma=sigma)
    if not math.isfinite(radius):
        raise ValueError(f"the radius is {radius}: p_lower is {p_lower} and p_upper is {p_upper}")
    return Certificate(prediction, abstained, radius, p_lower, p_upper)
