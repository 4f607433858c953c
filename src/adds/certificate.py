"""From class counts to certificates: Cohen et al.'s procedure and Theorem 3.3 of the paper."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta


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


def clopper_pearson_lower(successes: int, trials: int, alpha: float) -> float:
    """Return the largest p0 with P(Binomial(trials, p0) >= successes) <= alpha: a 1 - alpha lower bound on p."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes of {trials} trials is impossible")
    return 0.0 if successes == 0 else float(beta.ppf(alpha, successes, trials - successes + 1))


def least_certifying_n(alpha: float) -> int:
    """Return the smallest n for which n successes of n put the lower bound alpha^(1/n) above 1/2."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: it must be between 0 and 1")
    return math.floor(math.log2(1 / alpha)) + 1


def check_samples(*, n0: int, n: int, alpha: float) -> None:
    """Refuse sample sizes with which nothing could ever be certified."""
    least = least_certifying_n(alpha)
    if n0 < 1:
        raise ValueError(f"n0 is {n0}: at least 1 selection sample is needed")
    if n < least:
        raise ValueError(
            f"n is {n}: with alpha = {alpha} even {n} of {n} samples can't certify anything, "
            f"n must be at least {least}"
        )


def certified_radius(*, p_lower: float, p_upper: float, sigma: float) -> float:
    """Theorem 3.3: r = sigma / 2 (Phi^-1(p_lower) - Phi^-1(p_upper)), 0 where that is negative."""
    return max(0.0, float(sigma / 2 * (ndtri(p_lower) - ndtri(p_upper))))


def certify(*, selection: Sequence[int], estimation: Sequence[int], sigma: float, alpha: float) -> Certificate:
    """Certify from class counts of two independent sets of samples (Cohen et al., CERTIFY).

    The selection samples name the class; the estimation samples bound its probability from below by
    ``p_lower``, so that every other class has at most 1 - ``p_lower``. Abstain where that is no majority.
    """
    if len(selection) != len(estimation):
        raise ValueError(
            f"selection counts {len(selection)} classes and estimation {len(estimation)}: they must agree"
        )
    n = int(sum(estimation))
    check_samples(n0=int(sum(selection)), n=n, alpha=alpha)
    prediction = int(np.argmax(selection))
    p_lower = clopper_pearson_lower(int(estimation[prediction]), n, alpha)
    abstained = p_lower <= 0.5
    return Certificate(
        prediction=prediction,
        abstained=abstained,
        radius=0.0 if abstained else certified_radius(p_lower=p_lower, p_upper=1 - p_lower, sigma=sigma),
        p_lower=p_lower,
        p_upper=1 - p_lower,
    )
