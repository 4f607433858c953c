"""The pair bound at a fixed number of samples: the predicted class tested against the runner-up alone.

Notation, as in docs/statistics.md, which has the proofs: of n samples a fell on the predicted class A, b on the
class with most of the others, w = n - a - b elsewhere; p and q are the probabilities of A and of the most probable
other class, r = 1 - p - q. The certified radius is sigma delta / 2 for delta = Phi^-1(p) - Phi^-1(q), and this
module bounds delta from below. All points (p, q) with one delta form a curve: p = Phi(u + delta), q = Phi(u) for
u <= -delta / 2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, betainc, betaln, ndtr, ndtri, xlogy

from adds.certificates.binomial import Array, clopper_pearson_lower, clopper_pearson_upper

NUISANCE_SHARE = 1e-3
"""beta / alpha: what the confidence set for the nuisance parameter u may fail with."""

_CELLS, _HALVINGS = 16, 20
_SLACK = 3e-3
"""How closely probabilities are bounded, from above."""
_PRECISION = 1e-5
"""How closely delta is found at least, from below."""


def gate_p_value(top: ArrayLike, other: ArrayLike) -> Array:
    """Return P(Binomial(a + b, 1/2) >= a), which is at most alpha with probability alpha unless A is ahead.

    Given how many samples fell on A or on one other class, A's share of them is binomial, with a parameter of at
    most 1/2 if that class is no less probable. The p-value grows with b, so that at the runner-up's count it is at
    least what it is at the count of the most probable other class, whichever that is.
    """
    a, b = np.broadcast_arrays(np.asarray(top, float), np.asarray(other, float))
    return np.where(a > 0, betainc(np.maximum(a, 1), b + 1, 0.5), 1.0)


def pair_lower(top: int, other: int, trials: int, alpha: float) -> float | None:
    """Return a delta >= 0 that exceeds the true one with probability at most alpha; None where A may not lead.

    Buehler's construction: of all outcomes that speak as much for a large delta as this one, or more, the
    probability is at most alpha - beta at every point of the curve at delta that the confidence set allows.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: it must be between 0 and 1")
    if min(top, other) < 0 or top + other > trials:
        raise ValueError(f"{top} and {other} of {trials} samples is impossible")
    if not gate_p_value(top, other) <= alpha:
        return None
    return _lower(top, other, trials, alpha)


@lru_cache(maxsize=1 << 14)
def _lower(top: int, other: int, trials: int, alpha: float) -> float:
    return _Outcome(top, other, trials, alpha).lower()


def _deviance(x: ArrayLike, y: ArrayLike, w: ArrayLike, u: ArrayLike, delta: float) -> Array:
    """Return half the deviance of the curve's point u from counts x, y, w (a relative entropy, times n)."""
    x, y, w, u = (np.asarray(value, float) for value in (x, y, w, u))
    n = x + y + w
    observed = xlogy(x, x / n) + xlogy(y, y / n) + xlogy(w, w / n)
    return np.asarray(observed - xlogy(x, ndtr(u + delta)) - xlogy(y, ndtr(u)) - xlogy(w, _rest(u, delta)))


def _rest(u: ArrayLike, delta: float) -> Array:
    """Return r = 1 - p - q without cancellation: P(u < Z < -u - delta)."""
    at = np.asarray(u, float)
    return np.asarray(np.maximum(ndtr(-at - delta) - ndtr(at), 0.0))


def _density(z: ArrayLike) -> Array:
    return np.asarray(np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi))


def _root(function: Callable[[float], float], low: float, high: float, xtol: float = 2e-12) -> float:
    from scipy.optimize import brentq  # a quarter of a second, which jobs that only sample don't need

    return float(brentq(function, low, high, xtol=xtol))


def _slopes(u: Array, delta: float) -> tuple[Array, Array, Array]:
    """Return the derivatives by u of log p, log q and -log r along the curve."""
    of_p, of_q = _density(u + delta), _density(u)
    with np.errstate(divide="ignore"):
        return of_p / ndtr(u + delta), of_q / ndtr(u), (of_p + of_q) / _rest(u, delta)


@dataclass(frozen=True)
class _Outcome:
    """One outcome (a, b) of n samples, and all those that speak as much for a large delta as it does, or more."""

    top: int
    other: int
    trials: int
    alpha: float

    @property
    def beta(self) -> float:
        return NUISANCE_SHARE * self.alpha

    @property
    def level(self) -> float:
        """What the probability of the outcomes may be: alpha - beta, less what rounding may have lost."""
        return (self.alpha - self.beta) * (1 - 1e-9 - 1e-15 * self.trials)

    @property
    def deviance(self) -> float:
        """Half the deviance from which on the likelihood ratio test rejects: z_alpha^2 / 2."""
        return max(float(ndtri(1 - self.alpha)), 0.0) ** 2 / 2

    # The order of the outcomes

    def _half_deviance(self, delta: float) -> float:
        """Return the largest log likelihood less the largest on the curve, with a continuity correction."""
        n, x, y = self.trials, self.top - 0.5, self.other + 0.5
        w = max(n - x - y, 0.0)
        end = -delta / 2

        def score(u: float) -> float:
            of_p, of_q, of_rest = (float(slope) for slope in _slopes(np.asarray(u), delta))
            return x * of_p + y * of_q - w * of_rest

        if w > 0:
            gap = 1.0
            while score(end - gap) < 0:
                gap *= 2
            near = gap
            while score(end - near) > 0:
                near /= 2
            end = _root(score, end - gap, end - near) if near < gap else end - gap
        return float(_deviance(x, y, w, end, delta))

    @cached_property
    def order(self) -> float:
        """T(a, b): the largest delta that the corrected likelihood ratio test rejects. It grows with a, falls with b.

        It only puts outcomes in an order, and is no bound: any order with these two properties is sound.
        """
        n = self.trials
        estimate = float(ndtri((self.top - 0.5) / n) - ndtri((self.other + 0.5) / n))
        if self.deviance == 0:
            return estimate
        low = estimate - 1.0
        while self._half_deviance(low) < self.deviance:
            low -= 1.0
        return _root(lambda delta: self._half_deviance(delta) - self.deviance, low, estimate, xtol=1e-12)

    def thresholds(self, others: NDArray[np.int64]) -> Array:
        """Return for each b the smallest a of an outcome that comes at or above this one and passes the gate.

        On the curve at T, for a given b, let u be where the likelihood is largest: the score equation gives the a
        that belongs to it, both grow together, and so does the deviance. Rounding only ever lets more outcomes in.
        """
        n, delta = self.trials, self.order - 1e-9
        y = others + 0.5
        inside = np.minimum(y / n, 1.0)
        low, end = np.minimum(ndtri(inside), -delta / 2), -delta / 2
        high = np.full_like(low, end)

        def at(u: Array) -> tuple[Array, Array]:
            of_p, of_q, of_rest = _slopes(u, delta)
            share = np.where(np.isfinite(of_rest), 1 / (1 + of_p / of_rest), 1.0)
            x = np.clip((n - y) * share - y * of_q * (1 - share) / of_p, 0.0, n - y)
            w = np.maximum(n - y - x, 0.0)
            return x, _deviance(x, y, w, u, delta)

        _, largest = at(high)
        for _ in range(48):
            middle = (low + high) / 2
            _, found = at(middle)
            reached = found >= self.deviance - 1e-9
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        x, _ = at(low)
        least = np.ceil(x + 0.5 - 1e-6)
        never = (largest < self.deviance - 1e-9) | (ndtri(inside) >= end)
        return np.where(never, n + 1.0, np.maximum(least, self._gate(others)))

    def _gate(self, others: NDArray[np.int64]) -> Array:
        """Return for each b the smallest a that passes the gate."""
        low, high = np.zeros(len(others)), np.full(len(others), self.trials + 1.0)
        for _ in range(self.trials.bit_length() + 1):
            middle = np.floor((low + high) / 2)
            passes = gate_p_value(middle, others) <= self.alpha
            low, high = np.where(passes, low, middle), np.where(passes, middle, high)
        return high

    # Their probability

    @cached_property
    def _table(self) -> Array:
        """The thresholds that have been looked up; NaN where none has."""
        return np.full(self.trials + 1, np.nan)

    def _thresholds_at(self, others: NDArray[np.int64]) -> Array:
        first, last = int(others.min()), int(others.max())
        wanted = np.arange(first, last + 1)
        missing = wanted[np.isnan(self._table[wanted])]
        if len(missing):
            self._table[missing] = self.thresholds(missing)
        return self._table[others]

    def probability(self, p: Array, q: Array) -> Array:
        """Return at least the probability of the outcomes at (p, q), as a sum over b.

        Far below the mean of b (6 standard deviations, at alpha = 0.001) its whole probability is added; above 3.5 the
        rest's times the last conditional probability, which falls with b.
        """
        n = self.trials
        spread = np.sqrt(n * q * (1 - q))
        first = np.floor(np.clip(n * q - self._reach * spread - 3, 0, n)).astype(int)
        last = np.ceil(np.clip(n * q + 3.5 * spread + 8, 0, n)).astype(int)
        b = np.minimum(first[:, None] + np.arange((last - first).max() + 1), last[:, None])
        once = np.arange(b.shape[1]) <= (last - first)[:, None]
        a, left = self._thresholds_at(b), n - b
        share = np.minimum(p / (1 - q), 1.0)[:, None]
        upper = np.where(a <= left, betainc(np.minimum(a, left), np.maximum(left - a, 0) + 1, share), 0.0)
        log_mass = self._log_choices[b] + xlogy(b, q[:, None]) + xlogy(n - b, 1 - q[:, None])
        inside = (np.where(once, np.exp(log_mass), 0.0) * upper).sum(axis=1)
        below = np.where(first > 0, bdtr(np.maximum(first, 1) - 1, n, q), 0.0)
        return np.asarray(inside + below + bdtrc(last, n, q) * upper[:, -1])

    @property
    def _reach(self) -> float:
        """How many standard deviations have all but a hundred thousandth of alpha on one side, and at least 6."""
        return max(6.0, math.sqrt(2 * math.log(1e5 / self.alpha)))

    @cached_property
    def _log_choices(self) -> Array:
        b = np.arange(self.trials + 1)
        return np.asarray(-betaln(b + 1, self.trials - b + 1) - math.log(self.trials + 1))

    def _cells(self, left: Array, right: Array, delta: float) -> tuple[Array, Array]:
        """Return for each cell of u the probability at its middle, and at least the largest between its ends.

        Every outcome's log probability is concave in u, so it lies below its tangent at the middle. Summed over the
        outcomes the tangents' exponentials are convex, so the largest value is at an end of the cell, and there
        the sum is a probability again, of tilted p, q and r.
        """
        middle, half = (left + right) / 2, (right - left) / 2
        p, q, rest = ndtr(middle + delta), ndtr(middle), _rest(middle, delta)
        of_p, of_q, of_rest = _slopes(middle, delta)
        side = np.stack([np.zeros_like(half), -half, half])
        tilted_p, tilted_q = p * np.exp(of_p * side), q * np.exp(of_q * side)
        total = tilted_p + tilted_q + rest * np.exp(-of_rest * side)
        found = self.probability((tilted_p / total).ravel(), (tilted_q / total).ravel()).reshape(side.shape)
        return found[0], (total**self.trials * found).max(axis=0)

    def _corner(self, left: Array, right: Array, delta: float) -> Array:
        """Bound as `_cells` does, where the curve ends and r is 0: p from the cell's right, q from its left.

        Turning other outcomes into A's, or the runner-up's into others, can only add to the probability.
        """
        return self.probability(ndtr(right + delta), ndtr(left))

    def largest(self, delta: float) -> float:
        """Return at least the largest probability on the curve inside the confidence set, and hardly more.

        Cells are halved until none is bounded by much more than what is reached in the middle of one.
        """
        left, right = self._nuisance(delta)
        if math.isnan(left) or math.isnan(right):
            raise FloatingPointError(f"the confidence set of {self} has no limits")
        if left > right:
            return 0.0
        edges = np.linspace(left, right, _CELLS + 1)
        low, high = edges[:-1], edges[1:]
        reached = 0.0
        settled: float = 0.0
        for _ in range(_HALVINGS):
            inside, bound = self._cells(low, high, delta)
            ends = high >= -delta / 2
            if ends.any():
                bound[ends] = self._corner(low[ends], high[ends], delta)
            reached = max(reached, float(inside.max()))
            fine = bound <= (1 + _SLACK) * reached
            settled = max([settled, *bound[fine].tolist()])
            if fine.all():
                return settled
            middle = (low[~fine] + high[~fine]) / 2
            low, high = np.concatenate([low[~fine], middle]), np.concatenate([middle, high[~fine]])
        return 1.0

    # The bound

    @cached_property
    def _limits(self) -> tuple[float, float]:
        """The confidence set p >= p_low, q <= q_high, as Phi^-1: one-sided in both, so that it only grows with b."""
        p_low = clopper_pearson_lower(self.top, self.trials, self.beta / 2)
        q_high = clopper_pearson_upper(self.other, self.trials, self.beta / 2)
        return float(ndtri(p_low)), float(ndtri(q_high))

    def _nuisance(self, delta: float) -> tuple[float, float]:
        """Return the part of the curve that is in the confidence set: the range of u."""
        p_low, q_high = self._limits
        return p_low - delta, min(q_high, -delta / 2)

    def lower(self) -> float:
        """Return the largest delta that is found to be rejected; `largest` grows with delta, so all smaller ones are.

        Secants in log probability, between what was rejected and what was not.
        """
        p_low, q_high = self._limits
        low, high = max(0.0, p_low - q_high, 2 * p_low), math.inf
        guess, slope, target = max(self.order, low + _PRECISION), math.sqrt(self.trials), math.log(self.level)
        last: tuple[float, float] | None = None
        while high - low > _PRECISION:
            value = math.log(max(self.largest(guess), 1e-300))
            low, high = (guess, high) if value <= target else (low, guess)
            if target - 2 * _SLACK <= value <= target:
                break
            if last is not None and last[0] != guess:
                slope = max((value - last[1]) / (guess - last[0]), 1.0)
            last = guess, value
            guess -= (value - target + _SLACK / 2) / slope
            if not low < guess < high:
                guess = (low + high) / 2 if high < math.inf else low + 1.0
        return low * (1 - 1e-12)
