import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.optimize import brentq

from adds.certificates.binomial import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    log_evidence_above,
    mixture_lower,
)


@given(trials=st.integers(1, 12000), share=st.floats(0, 1), alpha=st.sampled_from([0.05, 0.001, 1e-6]))
def test_clopper_pearson_is_the_inverted_binomial_test(trials, share, alpha):
    successes = round(share * trials)

    def root(tail):
        return brentq(lambda p: tail(p) - alpha, 1e-15, 1 - 1e-15, xtol=1e-14)

    lower = clopper_pearson_lower(successes, trials, alpha)
    upper = clopper_pearson_upper(successes, trials, alpha)
    if successes == 0:
        assert lower == 0
    else:
        assert lower == pytest.approx(root(lambda p: stats.binom.sf(successes - 1, trials, p)), rel=1e-7, abs=1e-12)
    if successes == trials:
        assert upper == 1
    else:
        assert upper == pytest.approx(root(lambda p: stats.binom.cdf(successes, trials, p)), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("n", [10, 100, 1000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.55, 0.9, 0.999])
def test_coverage_of_clopper_pearson(n, p):
    """The bounds miss the truth with probability at most alpha: exactly, by summing over all outcomes."""
    alpha, outcomes = 0.01, np.arange(n + 1)
    mass = stats.binom.pmf(outcomes, n, p)
    assert mass[clopper_pearson_lower(outcomes, n, alpha) > p].sum() <= alpha
    assert mass[clopper_pearson_upper(outcomes, n, alpha) < p].sum() <= alpha
    simulated = stats.binom.rvs(n, p, size=20_000, random_state=0)
    misses = (clopper_pearson_lower(simulated, n, alpha) > p).sum()
    assert misses <= stats.binom.ppf(0.9999, 20_000, alpha)


@pytest.mark.parametrize(("k", "n", "p0"), [(7, 10, 0.5), (0, 5, 0.3), (40, 40, 0.6), (500, 900, 0.5)])
def test_evidence_is_the_mixture_of_likelihood_ratios(k, n, p0):
    def ratio(p):
        return (p / p0) ** k * ((1 - p) / (1 - p0)) ** (n - k)

    expected = integrate.quad(ratio, p0, 1, limit=200)[0] / (1 - p0)
    assert np.exp(log_evidence_above(p0, k, n)) == pytest.approx(expected, rel=1e-6)


def test_evidence_has_expectation_one_at_the_null():
    """A martingale at p = p0, a supermartingale below: exactly, over all outcomes."""
    n, outcomes = 60, np.arange(61)
    evidence = np.exp(log_evidence_above(0.4, outcomes, n))
    assert (stats.binom.pmf(outcomes, n, 0.4) * evidence).sum() == pytest.approx(1)
    assert (stats.binom.pmf(outcomes, n, 0.3) * evidence).sum() < 1


@given(n=st.integers(1, 5000), share=st.floats(0, 1), alpha=st.sampled_from([0.3, 0.05, 0.0005]))
def test_lower_sequence_is_the_edge_of_what_is_ruled_out(n, share, alpha):
    k = round(n * share)
    bound = float(mixture_lower(k, n, alpha))
    assert 0 <= bound <= k / (n + 1)
    assert bound <= clopper_pearson_lower(k, n, alpha) + 1e-12, "looking at any time must cost something"
    grid = np.linspace(1e-6, 1 - 1e-6, 997)
    out = log_evidence_above(grid, k, n) >= -np.log(alpha)
    assert not out[grid > bound + 1e-9].any()
    assert out[grid < bound - 1e-9].all()


@pytest.mark.parametrize("p", [0.5, 0.6, 0.95])
def test_sequence_survives_whoever_stops_when_it_looks_good(p):
    """3,000 people look after every sample and stop as soon as the bound exceeds the truth."""
    alpha, people, n = 0.05, 3000, 400
    rng = np.random.default_rng(0)
    successes = (rng.random((people, n)) < p).cumsum(axis=1)
    evidence = log_evidence_above(p, successes, np.arange(1, n + 1))
    fooled = (evidence >= -np.log(alpha)).any(axis=1).sum()
    assert fooled <= stats.binom.ppf(0.9999, people, alpha)
    naive = (clopper_pearson_lower(successes, np.arange(1, n + 1), alpha) > p).any(axis=1).sum()
    assert naive > stats.binom.ppf(0.9999, people, alpha), "the test must notice a bound that isn't anytime-valid"


def test_without_a_success_there_is_no_lower_bound():
    assert float(mixture_lower(0, 50, 0.01)) == 0


def test_impossible_counts_and_levels():
    with pytest.raises(ValueError, match="5 successes of 4"):
        clopper_pearson_lower(5, 4, 0.1)
    with pytest.raises(ValueError, match=r"alpha is 0\.5"):
        mixture_lower(1, 2, 0.5)
