"""Tests of paired differences: the same images under two settings.

Every test answers two questions about the mean difference D of a contrast. ``p_for`` is small where the data exclude
that the contrast is false, ``p_against`` where they exclude that it is true; in between both are large.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc, betainc, ndtr, ndtri
from scipy.stats import binom

from adds.results.accuracy import interval, mean_interval

Array = NDArray[np.float64]
Test = Literal["more", "less", "within", "not_less"]

LEVEL = 0.05
POWER = 0.8
FLIPS = 20_000
"""Random flips of signs: p-values have a floor of 1 / 20,001."""

EXACT_UP_TO = 1000
"""Images beyond which the exact test of a margin and the flips of signs give way to their normal limits."""

_NUISANCE = 100
"""Shares of discordant pairs that are tried for the largest p-value."""

_NEGLIGIBLE = 1e-12
"""Outcomes that are less probable than this are left out of p-values."""


def _quantiles(level: float) -> float:
    """Return the distance in standard errors that a one-sided test at ``level`` sees with probability 80%."""
    return float(ndtri(1 - level) + ndtri(POWER))


@dataclass(frozen=True)
class Found:
    """What a contrast's images show: the mean difference, its 95% interval, and both p-values.

    ``spread`` is one image's standard deviation and ``gap`` the distance of the estimate from the border between true
    and false: they tell what a run could have seen. ``discordant`` counts the pairs that differ, where values are yes
    or no.
    """

    estimate: float
    low: float
    high: float
    images: int
    p_for: float
    p_against: float
    spread: float
    gap: float
    discordant: int | None = None
    least: float = 0
    """Images with fewer of which nothing could hold."""

    @property
    def smallest_seen(self) -> float:
        """The distance from the border that so many images show with probability 80% at 5%, one-sided.

        (z_0.95 + z_0.8) s / sqrt(n).
        """
        return _quantiles(LEVEL) * self.spread / math.sqrt(self.images)

    def images_needed(self, tests: int = 1) -> float:
        """Return how many images would decide if the estimate were true: ((z_(1 - level) + z_0.8) s / gap)^2.

        The level is 5% where the estimate speaks for the contrast, and 5% / ``tests``, Holm's first step, where it
        speaks against it.
        """
        level = LEVEL if self.p_for <= self.p_against else LEVEL / tests
        if self.gap == 0:
            return math.inf
        return max(self.images + 1, self.least, math.ceil((_quantiles(level) * self.spread / self.gap) ** 2))


@dataclass(frozen=True)
class FoundNever(Found):
    """What images show of something that is never to happen; ``gap`` is the margin.

    ``images`` are those with which it could have happened, ``looked_at`` all of them.
    """

    looked_at: int = 0

    @property
    def smallest_seen(self) -> float:
        """The share of cases of which so many images would have shown one with probability 95%."""
        return float(1 - LEVEL ** (1 / self.images))

    def images_needed(self, tests: int = 1) -> float:  # noqa: ARG002
        """Return how many images would exclude the margin if no case came: log 0.05 / log(1 - margin) that could."""
        if self.estimate:
            return math.inf
        return math.ceil(math.log(LEVEL) / math.log(1 - self.gap) * self.looked_at / self.images)


def mcnemar(more: int, fewer: int) -> float:
    """Return P(Bin(more + fewer, 1/2) >= more), the exact one-sided p-value of McNemar's test that D > 0.

    ``more`` counts the pairs in which only the first is a yes, ``fewer`` those in which only the second is.
    """
    return float(bdtrc(more - 1, more + fewer, 0.5)) if more else 1.0


def score(more: Array, fewer: Array, images: int, difference: float) -> Array:
    """Return Tango's score statistic of D = ``difference``, the estimate's distance in standard errors.

    z = (b - c - n D) / sqrt(n (2 q + D (1 - D))) with the q that is most likely at D, the larger root of
    2 n q^2 + (D (2 n - b + c) - b - c) q - c D (1 - D) = 0; McNemar's (b - c) / sqrt(b + c) at D = 0.
    """
    if difference < 0:
        return -score(fewer, more, images, -difference)
    b, c, n, d = more, fewer, images, difference
    linear = (2 * n - b + c) * d - b - c
    q = (np.sqrt(linear**2 + 8 * n * c * d * (1 - d)) - linear) / (4 * n)
    variance = n * (2 * q + d * (1 - d))
    found: Array = (b - c - n * d) / np.sqrt(np.where(variance > 0, variance, np.inf))
    return found


def share_interval(more: int, fewer: int, images: int) -> tuple[float, float]:
    """Return Tango's 95% interval of D: the differences whose score statistic is at most 1.96."""
    estimate = (more - fewer) / images
    ends = []
    for outer in (-1.0, 1.0):
        inside, outside = estimate, outer
        for _ in range(40):
            middle = (inside + outside) / 2
            if abs(float(score(np.array(more), np.array(fewer), images, middle))) <= 1.96:
                inside = middle
            else:
                outside = middle
        ends.append(inside)
    return ends[0], ends[1]


@dataclass(frozen=True)
class Outcomes:
    """All outcomes of n pairs at D = margin: the score statistic of every one, and how probable each m is.

    ``scores`` [m, b] of b more among m discordant pairs, minus infinity for b > m. ``of_m`` [psi, m] is
    P(Bin(n, psi) = m) and ``of_b`` [psi] the probability (psi + D) / (2 psi) that a discordant pair is one more.
    """

    scores: Array
    of_m: Array
    of_b: Array


@lru_cache(maxsize=16)
def outcomes_at(images: int, margin: float) -> Outcomes:
    """Prepare the outcomes once for all contrasts of so many images."""
    m, b = np.meshgrid(np.arange(images + 1.0), np.arange(images + 1.0), indexing="ij")
    scores = np.where(b <= m, score(np.minimum(b, m), np.maximum(m - b, 0), images, margin), -np.inf)
    psi = np.linspace(max(abs(margin), 1e-6), 1.0, _NUISANCE)
    of_m = binom.pmf(np.arange(images + 1), images, psi[:, None])
    return Outcomes(scores, np.asarray(of_m), np.clip((psi + margin) / (2 * psi), 0.0, 1.0))


@lru_cache(maxsize=4096)
def above(more: int, fewer: int, images: int, margin: float) -> float:
    """Return the exact unconditional p-value of D > ``margin``.

    Outcomes are ordered by the score statistic; p is the probability of one at least as large, at D = margin, where
    pairs differ with the probability psi that makes it largest: sum over m of P(Bin(n, psi) = m) P(b >= b_m), with
    b ~ Bin(m, (psi + margin) / (2 psi)) given m, and b_m the least that is as far out. Of very many images,
    1 - Phi(z) for the score statistic z.
    """
    if images > EXACT_UP_TO:
        return float(ndtr(-score(np.array(more), np.array(fewer), images, margin)))
    outcomes = outcomes_at(images, margin)
    far = outcomes.scores >= outcomes.scores[more + fewer, more] - 1e-9
    m = np.arange(images + 1)
    least, possible = far.argmax(axis=1), far.any(axis=1)
    wanted = possible & (least > 0) & (outcomes.of_m > _NEGLIGIBLE)
    tail = np.where(possible & (least == 0), 1.0, np.zeros_like(outcomes.of_m))
    of_b = np.broadcast_to(outcomes.of_b[:, None], tail.shape)
    betainc(np.maximum(least, 1), m - np.minimum(least, m) + 1, of_b, out=tail, where=wanted)
    return float(min(1.0, (outcomes.of_m * tail).sum(axis=1).max()))


def of_shares(first: ArrayLike, second: ArrayLike, test: Test, margin: float) -> Found:
    """Compare two yes-or-no values of the same images: D is the difference of their shares.

    McNemar's test where nothing is to be exceeded, else `above`. Where no pair differs, the spread is as if one of
    n + 2 did.
    """
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    n, more, fewer = len(a), int((a & ~b).sum()), int((~a & b).sum())

    def exceeds(border: float, *, sign: int) -> float:
        b, c = (more, fewer) if sign > 0 else (fewer, more)
        return above(b, c, n, border) if border else mcnemar(b, c)

    p_for, p_against = _decide(exceeds, test, margin)
    estimate = (more - fewer) / n
    low, high = share_interval(more, fewer, n)
    spread = math.sqrt((more + fewer + 1) / (n + 2))
    return Found(estimate, low, high, n, p_for, p_against, spread, _gap(estimate, test, margin), more + fewer)


Exceeds = Callable[..., float]
"""Returns the p-value that sign * D is above a border: called with the border and ``sign``, 1 or -1."""


def _decide(exceeds: Exceeds, test: Test, margin: float) -> tuple[float, float]:
    """Return p for and p against a contrast, from one-sided tests.

    Within a margin is two of them, both of which must reject; against it either may, so that the smaller p is doubled.
    """
    if test in ("more", "less"):
        up, down = exceeds(0.0, sign=1), exceeds(0.0, sign=-1)
        return (up, down) if test == "more" else (down, up)
    not_low, too_low = exceeds(-margin, sign=1), exceeds(margin, sign=-1)
    if test == "not_less":
        return not_low, too_low
    not_high, too_high = exceeds(-margin, sign=-1), exceeds(margin, sign=1)
    return max(not_low, not_high), min(1.0, 2 * min(too_low, too_high))


def _gap(estimate: float, test: Test, margin: float) -> float:
    """Return how far an estimate is from the border between true and false."""
    if test in ("more", "less"):
        return abs(estimate)
    return abs(estimate + margin) if test == "not_less" else abs(margin - abs(estimate))


def flips(values: Array) -> float:
    """Return the sign-flip p-value that the mean is above 0.

    The share of random signs e with sum e_i d_i >= sum d_i, the signs as they are counted among them. Of very many
    images, 1 - Phi(sum d_i / sqrt(sum d_i^2)).
    """
    if not values.any():
        return 1.0
    if len(values) > EXACT_UP_TO:
        return float(ndtr(-values.sum() / math.sqrt((values**2).sum())))
    sums = 2 * (_signs(len(values)) @ values) - values.sum()
    extreme = int((sums >= values.sum() - 1e-9 * np.abs(values).sum()).sum())
    return (extreme + 1) / (FLIPS + 1)


def transformed_t(values: Array) -> float:
    """Return the p-value that the mean is above 0 by the t statistic with its skewness taken off (Hall, 1992).

    1 - Phi(sqrt(n) (S + g S^2 / 3 + g^2 S^3 / 27 + g / (6 n))), with S the mean and g the skewness, both in standard
    deviations. It grows with the mean.
    """
    deviations = values - values.mean()
    spread = float(values.std())
    if spread == 0:
        return 0.0 if values.mean() > 0 else 1.0
    s, g, n = float(values.mean()) / spread, float((deviations**3).mean()) / spread**3, len(values)
    return float(ndtr(-math.sqrt(n) * (s + g * s**2 / 3 + g**2 * s**3 / 27 + g / (6 * n))))


def above_zero(values: Array) -> float:
    """Return the p-value that the mean is above 0: the larger of that of flipped signs and of `transformed_t`.

    Flipped signs are exact where differences are symmetric, and too bold where a few images lose much.
    """
    return max(flips(values), transformed_t(values))


@lru_cache(maxsize=8)
def _signs(images: int) -> Array:
    """Return the same random signs for every contrast of so many images, 1 or 0 for plus or minus."""
    return np.random.default_rng(0).integers(0, 2, (FLIPS, images)).astype(float)


def unseen_loss(margin: float, largest: float, images: int) -> float:
    """Return the probability (1 - margin / largest)^n that n images show no loss, though the mean is -margin.

    That is so where a few images lose ``largest``, the most that they can, and the others nothing.
    """
    return max(0.0, 1 - margin / largest) ** images


def least_images(margin: float, largest: float) -> float:
    """Return how many images make `unseen_loss` as small as 5%: log 0.05 / log(1 - margin / largest)."""
    if largest <= margin:
        return 0
    return math.inf if math.isinf(largest) else math.ceil(math.log(LEVEL) / math.log(1 - margin / largest))


def of_means(differences: ArrayLike, test: Test, margin: float, largest: float = math.inf) -> Found:
    """Test the mean of paired differences by `above_zero`; the interval is Student's.

    That it exceeds no margin needs as many images as would show the ``largest`` differences (`unseen_loss`), too.
    """
    values = np.asarray(differences, dtype=float)
    if not np.isfinite(values).all():
        raise ValueError(f"{(~np.isfinite(values)).sum()} of {len(values)} images have no difference to test")
    p_for, p_against = _decide(lambda border, *, sign: above_zero(sign * values - border), test, margin)
    least = 0.0
    if test in ("within", "not_less"):
        p_for, least = max(p_for, unseen_loss(margin, largest, len(values))), least_images(margin, largest)
    estimate, low, high = mean_interval(values)
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    gap = _gap(estimate, test, margin)
    return Found(estimate, low, high, len(values), p_for, p_against, spread, gap, least=least)


def never(seen: int, images: int, margin: float, p_confirmed: float, *, looked_at: int) -> Found:
    """Test that something never happens: to none of the images that it could, and to fewer than ``margin`` of such.

    p_for = (1 - margin)^n where it was never seen, else 1. ``p_confirmed`` is the p-value that what was seen is no
    accident of sampling.
    """
    p_for = (1 - margin) ** images if seen == 0 else 1.0
    low, high = interval(seen, images)
    return FoundNever(seen / images, low, high, images, p_for, p_confirmed, math.nan, margin, looked_at=looked_at)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: the i-th smallest times (m - i + 1), never below those before it, at most 1."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, position in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = largest
    return adjusted
