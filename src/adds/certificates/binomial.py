"""Confidence bounds on the probability of a class: at a fixed sample size, and at any time.

All functions take arrays (or numbers) of counts and broadcast. ``alpha`` is the probability that the bound
fails: for the sequences, that it *ever* fails, however often one looks and whenever one stops.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincc, betainccinv, betaincinv, betaln

Array = NDArray[np.float64]

MAX_SEQUENCE_ALPHA = 0.3
"""`mixture_lower` is proved for alpha < 1/e."""

_BISECTIONS = 40


def _counts(successes: ArrayLike, trials: ArrayLike) -> tuple[Array, Array]:
    k, n = np.broadcast_arrays(np.asarray(successes, float), np.asarray(trials, float))
    if bool(((k < 0) | (k > n)).any()):
        raise ValueError(f"{k.max():g} successes of {n.min():g} trials is impossible")
    return k, n


def clopper_pearson_lower(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Array:
    """Return the largest p0 with P(Binomial(trials, p0) >= successes) <= alpha."""
    k, n = _counts(successes, trials)
    return np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), n - k + 1, alpha))


def clopper_pearson_upper(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Array:
    """Return the smallest p0 with P(Binomial(trials, p0) <= successes) <= alpha."""
    k, n = _counts(successes, trials)
    return np.where(k == n, 1.0, betainccinv(k + 1, np.maximum(n - k, 1), alpha))


def log_evidence_above(p0: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> Array:
    """Return the log of the mixture martingale against the hypothesis p <= p0.

        E_n(p0) = 1 / (1 - p0) * integral over p in (p0, 1] of (p / p0)^k ((1 - p) / (1 - p0))^(n - k) dp

    Every p in the mixture is above p0, so each likelihood ratio has expectation at most 1 per step whenever
    the truth is at most p0: E is a non-negative supermartingale that starts at 1, and by Ville's inequality
    it ever reaches 1 / alpha with probability at most alpha.
    """
    k, n = _counts(successes, trials)
    with np.errstate(divide="ignore"):
        return np.asarray(_log_evidence(np.asarray(p0, float), k, n, betaln(k + 1, n - k + 1)))


def _log_evidence(p0: Array, k: Array, n: Array, log_beta: Array) -> Array:
    above: Array = np.log(betaincc(k + 1, n - k + 1, p0))
    return log_beta + above - k * np.log(p0) - (n - k + 1) * np.log1p(-p0)


def mixture_lower(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Array:
    """Return the anytime-valid lower bound: the largest p0 that the evidence rules out, at level alpha.

    With f the likelihood and g the mean of f over (p0, 1], the derivative of log E has the sign of
    g ((n + 1) p0 - k) - p0 f(p0): E falls on (0, k / (n + 1)]. Above that, E is at most the ratio of the
    largest likelihood to f(p0), which is below e. So for alpha < 1/e the p0 that are ruled out form an
    interval from 0, whose end the bisection finds from below.
    """
    if not 0 < alpha <= MAX_SEQUENCE_ALPHA:
        raise ValueError(f"alpha is {alpha}: the confidence sequence needs 0 < alpha <= {MAX_SEQUENCE_ALPHA}")
    k, n = _counts(successes, trials)
    low, high = np.zeros_like(k), k / (n + 1)
    enough, log_beta = -np.log(alpha), betaln(k + 1, n - k + 1)
    with np.errstate(divide="ignore"):
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            positive = np.where(middle > 0, middle, 0.5)
            out = (middle > 0) & (_log_evidence(positive, k, n, log_beta) >= enough)
            low, high = np.where(out, middle, low), np.where(out, high, middle)
    return low
