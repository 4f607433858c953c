"""The pair bound at any time: evidence that A leads the runner-up by more than delta, whenever one looks.

As in `adds.certificates.pair`: of n samples a fell on the predicted class A, b on the runner-up; delta is
Phi^-1(p) - Phi^-1(q). Evidence is a product of bets whose mean is at most 1 as long as the lead is at most delta; by
Ville's inequality it ever reaches 1 / alpha with probability at most alpha. docs/statistics.md has the proofs.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtr

from adds.certificates.binomial import Array, log_evidence_above

GRID = 0.01
"""Leads are certified in steps of this size: radii in steps of sigma / 200."""
LARGEST = 8.0
"""The largest lead that is asked about. 10,000 of 10,000 samples show about 6."""

GAPS = (0.1, 0.35, 1.0)
"""Where tangents touch the border, as distances of u from its end at -delta / 2."""
STAKES = (0.01, 0.03, 0.08, 0.17, 0.3, 0.45, 0.65, 0.85)
"""Shares of the largest stake that can't lose more than there is."""
MAJORITY_WEIGHT = 0.1
"""Weight of the evidence that A has more than Phi(delta / 2), which a lead of at most delta excludes as well."""


def log_evidence_of_lead(top: ArrayLike, other: ArrayLike) -> Array:
    """Return the log evidence against p <= q: the mixture martingale on the samples that fell on either class.

    Under p_A <= p_c for some class c it is a supermartingale with c's count; it falls with that count, so at the
    runner-up's it is smallest, whoever the runner-up is at the moment.
    """
    a, b = np.asarray(top, float), np.asarray(other, float)
    return log_evidence_above(0.5, a, np.add(a, b))


@cache
def _grid() -> Array:
    return np.asarray(GRID * np.arange(1, round(LARGEST / GRID) + 1), dtype=np.float64)


@cache
def _log_payoffs() -> tuple[Array, Array, Array]:
    """Return the logs of what a bet pays for A, for the runner-up and for others ([deltas, tangents, stakes]).

    The leads of at most delta, {p <= Phi(Phi^-1(q) + delta)}, are a convex set for delta >= 0. Its tangent at
    (p0, q0) = (Phi(u + delta), Phi(u)) has the normal (phi(u), -phi(u + delta)), so a bet that pays

        1 + stake [phi(u) (1{A} - p0) - phi(u + delta) (1{c} - q0)]

    has a mean of at most 1 on the whole set, and is never negative while the stake is at most
    1 / (phi(u) p0 + phi(u + delta) (1 - q0)).
    """
    delta = _grid()[:, None, None]
    u = -delta / 2 - np.array(GAPS)[None, :, None]
    p0, q0 = ndtr(u + delta), ndtr(u)
    # Both densities over phi(u), which underflows nowhere.
    of_a, of_c = 1.0, np.exp(-delta * u - delta**2 / 2)
    stake = np.array(STAKES) / (of_a * p0 + of_c * (1 - q0))
    for_other = -of_a * p0 + of_c * q0
    return np.log1p(stake * (for_other + of_a)), np.log1p(stake * (for_other - of_c)), np.log1p(stake * for_other)


def log_evidence_of_leads(top: int, other: int, trials: int) -> Array:
    """Return the log evidence against a lead of at most delta, for every delta of the grid.

    A mixture with fixed weights over tangents and stakes, none of which looks at a sample, and over the evidence
    for A's share alone. For a given number of samples it falls with the runner-up's count.
    """
    of_a, of_c, of_other = _log_payoffs()
    bets = top * of_a + other * of_c + (trials - top - other) * of_other
    mixed = logsumexp(bets, axis=(1, 2)) - math.log(bets[0].size)
    majority = log_evidence_above(ndtr(_grid() / 2), top, trials)
    return np.logaddexp(math.log1p(-MAJORITY_WEIGHT) + mixed, math.log(MAJORITY_WEIGHT) + majority)


def pair_lower_anytime(top: int, other: int, trials: int, alpha: float) -> float | None:
    """Return a delta >= 0 that ever exceeds the true one with probability at most alpha; None where A may not lead.

    The grid is walked upwards and left at the first delta that isn't ruled out, so that an error needs one fixed
    hypothesis to be rejected: that of the first delta of the grid at or above the truth.
    """
    enough = -math.log(alpha)
    if not log_evidence_of_lead(top, other) >= enough:
        return None
    ruled_out = log_evidence_of_leads(top, other, trials) >= enough
    walked = int(np.argmin(ruled_out)) if not ruled_out.all() else len(ruled_out)
    return GRID * walked
