"""Soundness 5, statistics: the pair bound against its definition, its rivals and the truth, without simulation."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import ndtr, ndtri
from studies.exact_coverage import (
    ANY,
    ONE_RIVAL,
    RESTS,
    ever,
    evidence_of_counts,
    images,
    worst_fixed,
    worst_sequential,
)

from adds.certificates import betting, pair
from adds.certificates.betting import log_evidence_of_lead, log_evidence_of_leads, pair_lower_anytime
from adds.certificates.pair import _Outcome, gate_p_value, pair_lower
from tests.soundness import brute_force
from tests.soundness.two_sided import cohen_lead, two_sided_lead

ALPHAS = st.sampled_from([0.2, 0.05, 0.01, 0.001, 1e-6])
TOLERANCE = 0.004
"""A computed lead is a little below the exact one, by how much differs between neighbours.

By up to 3 `_SLACK` of log probability: 0.009 divided by its slope, which is 2.4 at (22, 0, 31, 0.2). 0.0014 was seen.
"""


@st.composite
def counts(draw, most=10_000, alphas=ALPHAS):
    """Counts (a, b, n) and a level; among them shares near the edges, where counts are near 0 or n."""
    n = draw(st.integers(1, most))
    share = draw(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.001, 0.5, 0.999, 1.0])))
    a = round(share * n)
    b = round(draw(st.floats(0, 1)) * min(a, n - a))
    return a, b, n, draw(alphas)


def lead(a, b, n, alpha):
    found = pair_lower(a, b, n, alpha)
    return -math.inf if found is None else found


def sample_of(n, alpha, size):
    """Some of the outcomes that pass the gate, evenly from all of them."""
    passed = np.argwhere(brute_force.gate(n, alpha))
    return [(int(a), int(b)) for a, b in passed[np.linspace(0, len(passed) - 1, min(size, len(passed))).astype(int)]]


# Who leads at all


@settings(max_examples=1000)
@given(counts())
def test_certifies_whatever_the_other_bounds_certify(case):
    a, b, n, alpha = case
    if max(cohen_lead(a, n, alpha), two_sided_lead(a, b, n, alpha)) > -math.inf:
        assert gate_p_value(a, b) <= alpha


@given(counts(most=2000))
def test_gate_is_the_binomial_test_and_only_helped_by_a(case):
    a, b, _, _ = case
    assert gate_p_value(a, b) == pytest.approx(stats.binom.sf(a - 1, a + b, 0.5), rel=1e-9)
    assert gate_p_value(a + 1, b) <= gate_p_value(a, b) <= gate_p_value(a, b + 1)


def test_certifies_only_through_the_gate():
    for alpha in (0.2, 0.01):
        certified = [[pair_lower(a, b, 12, alpha) is not None for b in range(13 - a)] for a in range(13)]
        assert certified == [list(row[: 13 - a]) for a, row in enumerate(brute_force.gate(12, alpha))]


def test_impossible_counts_and_levels():
    for a, b, n, alpha in ((7, 4, 10, 0.1), (-1, 4, 10, 0.1), (7, -1, 10, 0.1), (7, 1, 10, 0.0), (7, 1, 10, 1.0)):
        with pytest.raises(ValueError, match=r"impossible|between 0 and 1"):
            pair_lower(a, b, n, alpha)


# The radius beside other bounds', and from one outcome to the next


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("n", [100, 316, 1000, 3162, 10_000])
def test_never_below_two_sided_and_hardly_below_cohen(n, alpha):
    """Over shares of a, and of b in what a leaves: a radius at most sigma / 1000 below cohen's (a lead of 1 / 500)."""
    for a in {round(share * n) for share in (0.05, 0.2, 0.4, 0.52, 0.6, 0.8, 0.97, 1)}:
        for b in {round(share * min(a, n - a)) for share in (0, 0.3, 0.7, 1)}:
            found = lead(a, b, n, alpha)
            assert found >= two_sided_lead(a, b, n, alpha), (a, b)
            assert found >= cohen_lead(a, n, alpha) - 1 / 500, (a, b)


@settings(max_examples=40)
@given(counts(most=3000))
@example((281, 96, 426, 0.05))  # its confidence set ends just short of the curve's end
def test_grows_with_a_and_falls_with_b(case):
    a, b, n, alpha = case
    assume(a + b < n and gate_p_value(a, b) <= alpha)
    assert lead(a + 1, b, n, alpha) >= lead(a, b, n, alpha) - TOLERANCE
    assert lead(a, b + 1, n, alpha) <= lead(a, b, n, alpha) + TOLERANCE


@settings(max_examples=30)
@given(counts(most=3000), st.floats(0.01, 0.2))
def test_more_confidence_costs(case, factor):
    """With a fifth of alpha or less. (With half of it some outcomes get more: the order changes with alpha.)"""
    a, b, n, alpha = case
    assert lead(a, b, n, factor * alpha) <= lead(a, b, n, alpha) + TOLERANCE


@settings(max_examples=200)
@given(counts(), st.integers(1, 100))
def test_order_grows_with_a_and_falls_with_b(case, step):
    """What the proof needs: a set of outcomes that has one has those with more of A and fewer of the runner-up."""
    a, b, n, alpha = case
    assume(a > 0 and a + b < n)
    step = min(step, n - a - b)
    order = _Outcome(a, b, n, alpha).order
    assert _Outcome(a + step, b, n, alpha).order > order > _Outcome(a, b + step, n, alpha).order


# Every piece of the computation against brute force


@pytest.mark.parametrize("limits", [(math.nan, 0.5), (0.5, math.nan)])
def test_limits_that_are_no_numbers_certify_nothing(monkeypatch, limits):
    monkeypatch.setattr(_Outcome, "_limits", limits)
    with pytest.raises(FloatingPointError, match="has no limits"):
        _Outcome(30, 2, 40, 0.01).largest(0.5)


@pytest.mark.parametrize(("n", "alpha"), [(12, 0.2), (20, 0.05), (33, 0.01)])
def test_order_and_thresholds(n, alpha):
    """Also for outcomes that don't pass the gate themselves: what comes above them has to."""
    everything, orders = np.arange(n + 1), brute_force.orders(n, alpha)
    for a, b in [*sample_of(n, alpha, 40), (n // 3, n // 3), (n // 2, n // 2 - 1)]:
        outcome, expected = _Outcome(a, b, n, alpha), brute_force.as_much(a, b, n, alpha)
        assert outcome.order == pytest.approx(orders[a, b], abs=1e-9)
        found = everything[:, None] >= outcome.thresholds(everything)
        assert (found == expected)[everything[:, None] + everything <= n].all()


@pytest.mark.parametrize(("n", "alpha"), [(30, 0.05), (300, 0.2), (300, 0.001)])
def test_probability(n, alpha):
    """At least the sum over all outcomes, wherever p and q are; hardly more where the sum counts."""
    grid = np.array([0.0003, 0.01, 0.05, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99, 0.9999])
    p, q = (side.ravel() for side in np.meshgrid(grid, grid))
    p, q = np.append(p[p + q < 1], [0.6, 0.1, 0.95]), np.append(q[p + q < 1], [0.4, 0.9, 0.05])
    everything = np.arange(n + 1)
    for a, b in ((n, 0), (n // 2, n // 4), (n // 4, 1), (3 * n // 4, n - 3 * n // 4), (n // 3, n // 5)):
        outcome = _Outcome(a, b, n, alpha)
        inside = everything[:, None] >= outcome.thresholds(everything)
        inside &= everything[:, None] + everything <= n
        exact, found = brute_force.probability(inside, n, p, q), outcome.probability(p, q)
        assert (found >= exact * (1 - 1e-10)).all()
        assert (found <= exact * 1.001 + 1e-8).all()


@pytest.mark.parametrize(("n", "alpha"), [(15, 0.2), (40, 0.05), (60, 0.001)])
def test_largest_probability_on_the_curve(n, alpha):
    """At least what is reached anywhere on a fine grid of the curve, ends included, and hardly more."""
    for a, b in sample_of(n, alpha, 12):
        outcome = _Outcome(a, b, n, alpha)
        inside, limits = brute_force.as_much(a, b, n, alpha), brute_force.confidence_set(a, b, n, alpha)
        for delta in (outcome.lower(), max(outcome.order, 0.1), outcome.lower() + 0.5):
            exact = brute_force.largest(inside, limits, n, delta, points=1501)
            assert exact * (1 - 1e-10) <= outcome.largest(delta) <= exact * 1.01


@settings(max_examples=200)
@given(counts(), st.floats(0, 6))
def test_confidence_set_is_one_sided_in_both(case, delta):
    """All of the curve with p >= p_low and q <= q_high: whoever has more of A or fewer others is in the set as well."""
    a, b, n, alpha = case
    assume(a > 0)
    p_low, q_high = brute_force.confidence_set(a, b, n, alpha)
    left, right = _Outcome(a, b, n, alpha)._nuisance(delta)
    assert left == pytest.approx(ndtri(p_low) - delta, abs=1e-7)
    assert right == pytest.approx(min(ndtri(q_high), -delta / 2), abs=1e-7)


@given(counts(most=10**6))
def test_set_and_outcomes_share_alpha(case):
    """Where the truth is outside the set, and where the outcomes were improbable: together no more than alpha."""
    a, b, n, alpha = case
    outcome = _Outcome(a, b, n, alpha)
    assert outcome.beta == brute_force.SHARE_OF_THE_SET * alpha
    assert (1 - 1e-8) * (alpha - outcome.beta) < outcome.level < alpha - outcome.beta


@pytest.mark.parametrize(("n", "alpha"), [(12, 0.2), (20, 0.05), (30, 0.01), (40, 0.05)])
def test_never_above_the_exact_bound(n, alpha):
    for a, b in sample_of(n, alpha, 15):
        exact = brute_force.lower(a, b, n, alpha, points=301)
        assert exact - 0.012 <= pair_lower(a, b, n, alpha) <= exact


# False certificates, exactly


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("n", [12, 20, 30])
def test_false_certificates_summed_over_all_outcomes(n, alpha):
    """At most alpha for every lead, every share of the rest, and however many classes the rest is."""
    worst = [worst_fixed(n, alpha, rest, points=61) for rest in RESTS]
    assert max(case.probability for case in worst) <= alpha, worst
    assert worst[0].probability > 0.99 * alpha, "a bound far from alpha would leave room for mistakes"


# At any time: bets

LEADS = betting._grid()
SOME = (0, 19, 99, 199, 399, -1)
"""Leads of the grid, by their place in it, at which all images that lead by no more are looked at."""


def no_more_than(delta):
    """Class probabilities of A, the runner-up and others with leads of at most delta: the border, and inside of it."""
    border = images(delta, ANY, 61)
    less = [border * [share, 1, 1] + border[:, :1] * [0, 0, 1 - share] for share in (0, 0.5, 0.95)]
    return np.concatenate([border, *less, np.eye(3)[1:]])


def payoffs():
    """What bets pay for A, for the runner-up and for others ([3, deltas, tangents, stakes])."""
    return np.exp(betting._log_payoffs())


def test_bets_never_pay_less_than_nothing():
    assert (payoffs() > 0).all()
    assert (np.diff(payoffs()[[1, 2, 0]], axis=0) > 0).all(), "most for A, least for the runner-up"


def test_bets_are_worth_at_most_their_price_while_the_lead_is_at_most_delta():
    for place in SOME:
        mean = np.tensordot(no_more_than(LEADS[place]), payoffs()[:, place], axes=1)
        assert mean.max() <= 1 + 1e-12


def test_bets_are_fair_where_their_tangent_touches():
    for tangent, gap in enumerate(betting.GAPS):
        u = -LEADS / 2 - gap
        p, q = ndtr(u + LEADS)[:, None], ndtr(u)[:, None]
        of_a, of_c, of_other = payoffs()[:, :, tangent]
        np.testing.assert_allclose(p * of_a + q * of_c + (1 - p - q) * of_other, 1, atol=1e-12)


def mean_likelihood_ratio(p0, successes, trials):
    """Of all p above p0 to p0."""

    def ratio(p):
        return (p / p0) ** successes * ((1 - p) / (1 - p0)) ** (trials - successes)

    return integrate.quad(ratio, p0, 1)[0] / (1 - p0)


def test_evidence_is_the_mixture_it_says():
    """From densities and likelihood ratios written out, at one outcome and a few leads."""
    a, b, n = 9, 2, 14
    for place in SOME[:4]:
        delta, products = LEADS[place], []
        for gap in betting.GAPS:
            u = -delta / 2 - gap
            p, q, of_a, of_c = ndtr(u + delta), ndtr(u), stats.norm.pdf(u), stats.norm.pdf(u + delta)
            for share in betting.STAKES:
                stake = share / (of_a * p + of_c * (1 - q))
                hit, miss, other = (
                    1 + stake * (of_a * (is_a - p) - of_c * (is_c - q)) for is_a, is_c in ((1, 0), (0, 1), (0, 0))
                )
                products.append(hit**a * miss**b * other ** (n - a - b))
        expected = (1 - betting.MAJORITY_WEIGHT) * np.mean(products)
        expected += betting.MAJORITY_WEIGHT * mean_likelihood_ratio(ndtr(delta / 2), a, n)
        assert np.exp(log_evidence_of_leads(a, b, n)[place]) == pytest.approx(expected, rel=1e-8)


def test_evidence_never_grows_on_average_while_the_lead_is_at_most_delta():
    """From every state of a few samples to the next one: a supermartingale, so that Ville's inequality holds."""
    for n in (0, 1, 4, 9):
        for a in range(n + 1):
            for b in range(n + 1 - a):
                now = np.exp(log_evidence_of_leads(a, b, n))
                then = np.exp([log_evidence_of_leads(*state, n + 1) for state in ((a + 1, b), (a, b + 1), (a, b))])
                for place in SOME:
                    assert (no_more_than(LEADS[place]) @ then[:, place]).max() <= now[place] * (1 + 1e-9)
                gate = np.exp([log_evidence_of_lead(*state) for state in ((a + 1, b), (a, b + 1), (a, b))])
                assert (no_more_than(0.0) @ gate).max() <= gate[2] * (1 + 1e-9)


@given(counts(most=2000), st.integers(1, 50))
def test_evidence_falls_with_the_runner_up(case, more):
    a, b, n, _ = case
    assume(b + more <= n - a)
    assert (log_evidence_of_leads(a, b, n) >= log_evidence_of_leads(a, b + more, n)).all()
    assert log_evidence_of_lead(a, b) >= log_evidence_of_lead(a, b + more)


def test_evidence_ever_reaches_its_level_with_probability_alpha():
    """By dynamic programming, with a look after every sample, at and next to the border, for two and more others."""
    horizon, leads = 30, (0.0, betting.GRID, 0.5, 1.5)
    for lead, evidence in zip(leads, evidence_of_counts(horizon, leads), strict=True):
        for alpha in (0.2, 0.05):
            for rest in (ANY, ONE_RIVAL):
                worst = worst_sequential(evidence, alpha, rest, lead, points=25)
                assert worst.probability <= alpha, worst
            inside = no_more_than(lead)
            assert ever(evidence >= -math.log(alpha), inside).max() <= alpha


GRID_POINTS = round(betting.LARGEST / betting.GRID)


@pytest.mark.parametrize(
    ("gate", "ruled_out", "expected"),
    [
        (False, [True] * GRID_POINTS, None),
        (True, [False] * GRID_POINTS, 0),
        (True, [True, True, False, True, *[False] * (GRID_POINTS - 4)], 2 * betting.GRID),
        (True, [False, *[True] * (GRID_POINTS - 1)], 0),
        (True, [True] * GRID_POINTS, betting.LARGEST),
    ],
)
def test_walk_ends_at_the_first_lead_that_is_not_ruled_out(monkeypatch, gate, ruled_out, expected):
    """Whatever the evidence against larger ones: only then the error is that of a single hypothesis."""
    monkeypatch.setattr(betting, "log_evidence_of_lead", lambda *_: np.where(gate, 10.0, 0.0))
    monkeypatch.setattr(betting, "log_evidence_of_leads", lambda *_: np.where(ruled_out, 10.0, 0.0))
    assert pair_lower_anytime(10, 0, 10, 0.001) == (expected if expected is None else pytest.approx(expected))


def test_level_of_the_evidence(monkeypatch):
    """1 / alpha, for the gate and for every lead."""
    enough = math.log(1000)
    for gate, leads, expected in ((enough + 1e-9, enough + 1e-9, 8), (enough - 1e-9, 99, None), (99, enough - 1e-9, 0)):
        monkeypatch.setattr(betting, "log_evidence_of_lead", lambda *_, value=gate: np.asarray(value))
        monkeypatch.setattr(betting, "log_evidence_of_leads", lambda *_, value=leads: np.full(GRID_POINTS, value))
        assert pair_lower_anytime(10, 0, 10, 0.001) == expected


def test_a_maximum_that_was_not_found_is_taken_for_1(monkeypatch):
    """So that no certificate rests on it."""
    monkeypatch.setattr(pair, "_HALVINGS", 1)
    assert _Outcome(30, 2, 40, 0.01).largest(0.5) == 1


def test_probabilities_that_are_no_numbers_certify_nothing(monkeypatch):
    monkeypatch.setattr(pair, "_HALVINGS", 3)
    nothing = lambda _self, low, *_: (np.full(len(low), 0.1), np.full(len(low), np.nan))  # noqa: E731
    monkeypatch.setattr(_Outcome, "_cells", nothing)
    assert _Outcome(30, 2, 40, 0.01).largest(0.5) == 1
