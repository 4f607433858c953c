"""The pair bound once more, from its definition and without its speed, for a few dozen samples.

Nothing here is shared with `adds.certificates.pair`: likelihoods are maximised by comparing them, the gate is counted
in integers, probabilities are sums over all outcomes, the curve is a grid of u. Sets of outcomes are arrays [a, b] of
truth values.
"""

from fractions import Fraction
from functools import cache
from math import comb

import numpy as np
from scipy import stats
from scipy.special import gammaln, ndtr, ndtri, xlogy

SHARE_OF_THE_SET = 1e-3


def _counts(n):
    a, b = np.indices((n + 1, n + 1))
    return a, b, n - a - b


@cache
def gate(n, alpha):
    """Where P(Binomial(a + b, 1/2) >= a) <= alpha, in integers."""
    passes = np.zeros((n + 1, n + 1), dtype=bool)
    for a in range(n + 1):
        for b in range(n + 1 - a):
            ways = sum(comb(a + b, k) for k in range(a, a + b + 1))
            passes[a, b] = Fraction(ways, 2 ** (a + b)) <= Fraction(alpha)
    return passes


def _profile(x, y, w, delta):
    """The largest log likelihood on the curve at delta, by ternary search: it is concave in u."""
    low, high = -delta / 2 - 12, -delta / 2

    def at(u):
        rest = np.maximum(ndtr(-u - delta) - ndtr(u), 0)
        return xlogy(x, ndtr(u + delta)) + xlogy(y, ndtr(u)) + xlogy(w, rest)

    for _ in range(70):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        rises = at(left) < at(right)
        low, high = np.where(rises, left, low), np.where(rises, high, right)
    return np.maximum(at(low), at(high))


@cache
def orders(n, alpha):
    """T of every outcome: the largest delta with half a deviance of z^2 / 2 or more, at (a - 1/2, b + 1/2)."""
    a, b, w = _counts(n)
    possible = (a > 0) & (w >= 0)
    x, y, w = a[possible] - 0.5, b[possible] + 0.5, w[possible].astype(float)
    best = xlogy(x, x / n) + xlogy(y, y / n) + xlogy(w, w / n)
    high = ndtri(x / n) - ndtri(y / n)
    low, needed = high - 12, stats.norm.ppf(1 - alpha) ** 2 / 2
    for _ in range(45):
        middle = (low + high) / 2
        rejected = best - _profile(x, y, w, middle) >= needed
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    found = np.full((n + 1, n + 1), -np.inf)
    found[possible] = low
    return found


def as_much(a, b, n, alpha):
    """Which outcomes speak as much for a large delta as (a, b), or more, and pass the gate."""
    order = orders(n, alpha)
    return (order >= order[a, b] - 1e-8) & gate(n, alpha)


def probability(outcomes, n, p, q):
    """The probability of the outcomes ([a, b]) at every point, summed one by one."""
    a, b = np.nonzero(outcomes)
    w = n - a - b
    choices = gammaln(n + 1) - gammaln(a + 1) - gammaln(b + 1) - gammaln(w + 1)
    p, q = (np.asarray(value, float)[:, None] for value in (p, q))
    rest = np.maximum(1 - p - q, 0)
    return np.exp(choices + xlogy(a, p) + xlogy(b, q) + xlogy(w, rest)).sum(axis=1)


def confidence_set(a, b, n, alpha):
    """Clopper and Pearson's p_low and q_high, each at half of what the confidence set may fail with."""
    level = SHARE_OF_THE_SET * alpha / 2
    return stats.beta.ppf(level, a, n - a + 1), stats.beta.isf(level, b + 1, n - b)


def largest(outcomes, limits, n, delta, points):
    """The largest probability of the outcomes on the curve at delta, inside the confidence set; 0 if nothing is."""
    p_low, q_high = limits
    left, right = ndtri(p_low) - delta, min(ndtri(q_high), -delta / 2)
    if left > right:
        return 0.0
    u = np.linspace(left, right, points)
    return float(probability(outcomes, n, ndtr(u + delta), ndtr(u)).max())


def lower(a, b, n, alpha, points):
    """Buehler's bound: up to which delta the outcomes have at most alpha, less the set's share; by bisection."""
    outcomes, limits = as_much(a, b, n, alpha), confidence_set(a, b, n, alpha)
    low, high = 0.0, 10.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        rejected = largest(outcomes, limits, n, middle, points) <= (1 - SHARE_OF_THE_SET) * alpha
        low, high = (middle, high) if rejected else (low, middle)
    return high
