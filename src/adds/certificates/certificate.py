"""From class counts to certificates: Cohen et al.'s procedure and Theorem 3.3 of the paper."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from adds.certificates.bounds import bound_function
from adds.certificates.label import label_has_majority
from adds.registry import Mode


@dataclass(frozen=True)
class Certificate:
    """What is known of one image. ``radius`` is in [0, 1] pixel units and 0 where the method abstains.

    With probability 1 - alpha over the samples: the smoothed classifier's class is ``prediction``, and stays
    so for every change of the image with l2 norm below ``radius``, unless ``abstained``.
    """

    prediction: int
    abstained: bool
    radius: float
    p_lower: float = math.nan
    p_upper: float = math.nan


@lru_cache
def least_certifying_n(alpha: float, *, mode: Mode = "fixed", bound: str = "cohen") -> int:
    """Return the smallest n for which n successes of n can certify anything."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: it must be between 0 and 1")
    n = 1
    while bound_function(bound)([n, 0], 0, sigma=1.0, alpha=alpha, mode=mode).abstained:
        n += 1
    return n


def check_samples(*, n0: int, n: int, alpha: float, mode: Mode = "fixed", bound: str = "cohen") -> None:
    """Refuse sample sizes with which nothing could ever be certified."""
    least = least_certifying_n(alpha, mode=mode, bound=bound)
    if n0 < 1:
        raise ValueError(f"n0 is {n0}: at least 1 selection sample is needed")
    if n < least:
        raise ValueError(
            f"n is {n}: with alpha = {alpha} even {n} of {n} samples can't certify anything, n must be at least {least}"
        )


def certify(
    *,
    selection: Sequence[int],
    estimation: Sequence[int],
    sigma: float,
    alpha: float,
    mode: Mode = "fixed",
    bound: str = "cohen",
) -> Certificate:
    """Certify from class counts of two independent sets of samples (Cohen et al., CERTIFY).

    The selection samples name the class; the estimation samples bound its probability and the others'.
    Abstain where the class isn't sure to be the most probable one.
    """
    if len(selection) != len(estimation):
        raise ValueError(f"selection counts {len(selection)} classes and estimation {len(estimation)}: they must agree")
    if mode == "fixed":
        check_samples(n0=int(sum(selection)), n=int(sum(estimation)), alpha=alpha, bound=bound)
    prediction = int(np.argmax(selection))
    verdict = bound_function(bound)(estimation, prediction, sigma=sigma, alpha=alpha, mode=mode)
    return Certificate(prediction, **vars(verdict))


def certify_label(*, label: int, estimation: Sequence[int], alpha: float, at_fixed_cap: bool) -> Certificate:
    """Certify that the smoothed classifier gives the label, for sure at the image itself only (radius 0)."""
    successes, trials = int(estimation[label]), int(sum(estimation))
    proved = label_has_majority(successes, trials, alpha, at_fixed_cap=at_fixed_cap)
    return Certificate(label, abstained=not proved, radius=0.0)
