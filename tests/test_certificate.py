"""Soundness 5, statistics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from adds.certificate import (
    certified_radius,
    certify,
    check_samples,
    clopper_pearson_lower,
    least_certifying_n,
)


@given(trials=st.integers(1, 12000), share=st.floats(0, 1), alpha=st.sampled_from([0.05, 0.001, 1e-6]))
def test_clopper_pearson_is_the_inverted_binomial_test(trials, share, alpha):
    successes = round(share * trials)
    found = clopper_pearson_lower(successes, trials, alpha)
    if successes == 0:
        assert found == 0
        return
    reference = brentq(lambda p: stats.binom.sf(successes - 1, trials, p) - alpha, 1e-15, 1 - 1e-15, xtol=1e-14)
    assert found == pytest.approx(reference, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("n", [10, 100, 1000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.55, 0.9, 0.999])
def test_coverage(n, p):
    """The bound is above the truth with probability at most alpha: exactly, by summing over all outcomes."""
    alpha = 0.01
    outcomes = np.arange(n + 1)
    bounds = np.array([clopper_pearson_lower(int(k), n, alpha) for k in outcomes])
    assert stats.binom.pmf(outcomes, n, p)[bounds > p].sum() <= alpha
    simulated = stats.binom.rvs(n, p, size=20_000, random_state=0)
    misses = (bounds[simulated] > p).sum()
    assert misses <= stats.binom.ppf(0.9999, 20_000, alpha)


def test_radius_of_the_paper():
    """469 s of an A100 end here: 10,000 of 10,000 samples certify 3.19 sigma."""
    counts = [0, 10_000]
    found = certify(selection=[0, 1000], estimation=counts, sigma=0.5, alpha=0.001)
    assert found.prediction == 1
    assert found.p_lower == pytest.approx(0.001 ** (1 / 10_000))
    assert found.radius == pytest.approx(0.5 * stats.norm.ppf(0.001 ** (1 / 10_000)))
    assert found.p_upper == 1 - found.p_lower


def test_theorem():
    assert certified_radius(p_lower=0.9, p_upper=0.1, sigma=2) == pytest.approx(2 * stats.norm.ppf(0.9))
    assert certified_radius(p_lower=0.4, p_upper=0.5, sigma=2) == 0


def test_prediction_comes_from_the_selection_samples_only():
    found = certify(selection=[3, 2], estimation=[10, 90], sigma=1, alpha=0.001)
    assert found.prediction == 0
    assert found.abstained
    assert found.radius == 0


def test_abstains_at_one_half():
    assert certify(selection=[9, 1], estimation=[52, 48], sigma=1, alpha=0.001).abstained
    assert not certify(selection=[9, 1], estimation=[80, 20], sigma=1, alpha=0.001).abstained


@pytest.mark.parametrize("alpha", [0.05, 0.001, 0.125, 1e-9])
def test_least_certifying_n(alpha):
    n = least_certifying_n(alpha)
    assert alpha ** (1 / n) > 0.5
    assert alpha ** (1 / (n - 1)) <= 0.5


def test_hopeless_sample_sizes_are_refused():
    with pytest.raises(ValueError, match=r"n is 9.*at least 10"):
        check_samples(n0=10, n=9, alpha=0.001)
    with pytest.raises(ValueError, match="n0 is 0"):
        check_samples(n0=0, n=100, alpha=0.001)
    with pytest.raises(ValueError, match="alpha is 0"):
        check_samples(n0=1, n=100, alpha=0)
    with pytest.raises(ValueError, match="must agree"):
        certify(selection=[1, 2, 3], estimation=[100, 0], sigma=1, alpha=0.001)
    with pytest.raises(ValueError, match="5 successes of 4"):
        clopper_pearson_lower(5, 4, 0.1)
