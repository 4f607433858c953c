"""Soundness 5, statistics: certificates from counts."""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from adds.certificates.betting import pair_lower_anytime
from adds.certificates.binomial import mixture_lower
from adds.certificates.bounds import bound_function, certified_radius
from adds.certificates.certificate import certify, check_samples, least_certifying_n
from adds.certificates.pair import pair_lower
from adds.registry import OPTIONS
from adds.results.certified import certificates
from tests.soundness.two_sided import two_sided_lead


def test_radius_of_the_paper():
    """10,000 of 10,000 samples certify 3.19 sigma at alpha = 0.001."""
    found = certify(selection=[0, 1000], estimation=[0, 10_000], sigma=0.5, alpha=0.001)
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


def test_pair_certifies_without_a_majority():
    counts = [450, *[50] * 11]
    cohen = certify(selection=counts, estimation=counts, sigma=1, alpha=0.001)
    pair = certify(selection=counts, estimation=counts, sigma=1, alpha=0.001, bound="pair")
    assert cohen.abstained
    assert not pair.abstained
    assert two_sided_lead(450, 50, 1000, 0.001) / 2 < pair.radius < (stats.norm.ppf(0.45) - stats.norm.ppf(0.05)) / 2


@pytest.mark.parametrize(("mode", "lower"), [("fixed", pair_lower), ("sequential", pair_lower_anytime)])
def test_pair_looks_at_the_largest_count_of_any_other_class(mode, lower):
    """Half of the lead that its counts show, whichever class is the runner-up; there are no bounds p_lower, p_upper."""
    for counts, prediction in (([70, 12, 3, 15], 0), ([15, 3, 70, 12], 2), ([0, 0, 15, 85], 3)):
        found = bound_function("pair")(counts, prediction, sigma=0.6, alpha=0.01, mode=mode)
        assert found.radius == 0.3 * lower(max(counts), 15, 100, 0.01) > 0
        assert math.isnan(found.p_lower)
        assert math.isnan(found.p_upper)


@pytest.mark.parametrize("mode", ["fixed", "sequential"])
def test_pair_abstains_next_to_a_tie(mode):
    """And where the class isn't the first; then the radius is 0."""
    for counts in ([40, 39, 21], [39, 40, 21], [0, 100, 0], [0, 0, 100]):
        found = bound_function("pair")(counts, 0, sigma=1, alpha=0.01, mode=mode)
        assert (found.abstained, found.radius) == (True, 0)


@pytest.mark.parametrize("mode", ["fixed", "sequential"])
@pytest.mark.parametrize("bound", ["cohen", "pair"])
@pytest.mark.parametrize(
    "p",
    [(0.5, 0.5), (0.34, 0.33, 0.33), (0.3, 0.3, 0.2, 0.2), (0.1,) * 10, (0.02,) * 50, (0.49, 0.51)],
    ids=str,
)
def test_false_certificates_are_rare(mode, bound, p):
    """At or next to a tie any certificate for class 0 is false or worth nothing: at most alpha of them.

    In sequential mode the image's owner cheats: he looks after every chunk and stops when he likes what he sees.
    """
    alpha, images, chunk, looks = 0.05, 1000, 50, 4 if mode == "sequential" else 1
    rng = np.random.default_rng(1)
    true_radius = max(0, stats.norm.ppf(p[0]) - stats.norm.ppf(max(p[1:]))) / 2
    ahead = p[0] > max(p[1:])
    counts = np.zeros((images, len(p)), dtype=np.int64)
    false = np.zeros(images, dtype=bool)
    certify_one = cache(lambda *row: bound_function(bound)(row, 0, sigma=1, alpha=alpha, mode=mode))
    for _ in range(looks):
        counts += rng.multinomial(chunk if mode == "sequential" else 200, p, size=images)
        for image, row in enumerate(counts):
            # Which of the others has a count doesn't matter, so that sorted ones are often in the cache.
            found = certify_one(row[0], *np.sort(row[1:])[::-1])
            false[image] |= not found.abstained and not (ahead and found.radius <= true_radius)
    assert false.sum() <= stats.binom.ppf(0.9999, images, alpha)


def test_sequential_cohen_spends_all_of_alpha_on_one_end():
    found = bound_function("cohen")([60, 10, 30], 0, sigma=1, alpha=0.01, mode="sequential")
    assert found.p_lower == mixture_lower(60, 100, 0.01)
    assert found.p_upper == 1 - found.p_lower


MADE_BY = {
    "seed": 0,
    "guidance_scale": 0.8,
    **dict.fromkeys(OPTIONS, ""),
    "identity": "x",
    "device_kind": "cpu",
    "device": "cpu x86_64",
}


def test_certificates_of_a_table_are_those_of_its_rows():
    rows = [("adds", 0.5, 5, 7, 1, [1, 9], [20, 180]), ("rs", 1.0, 1, 8, 0, [6, 4], [110, 90])]
    names = ["method", "sigma", "votes", "number", "label", "counts_selection", "counts_estimation"]
    counts = pd.DataFrame(rows, columns=names).assign(
        n0=10, n=200, stopped="fixed", evaluations=5, seconds=1.0, budget_share=0.9, **MADE_BY
    )
    table = certificates(counts, alpha=0.01, mode="fixed", bounds=["cohen"])
    for row, (_, sigma, _, _, label, selection, estimation) in zip(table.itertuples(), rows, strict=True):
        own = certify(selection=selection, estimation=estimation, sigma=sigma, alpha=0.01)
        assert (row.prediction, row.abstained, row.radius) == (own.prediction, own.abstained, own.radius)
        assert row.correct == (own.prediction == label)
    with pytest.raises(ValueError, match="sequentially"):
        certificates(counts.assign(stopped="decided"), alpha=0.01, mode="fixed", bounds=["cohen"])
    with pytest.raises(ValueError, match="spent more than its privacy budget"):
        certificates(counts.assign(budget_share=1.7), alpha=0.01, mode="fixed", bounds=["cohen"])


@pytest.mark.parametrize("alpha", [0.05, 0.001, 0.125, 1e-9])
def test_least_certifying_n(alpha):
    n = least_certifying_n(alpha)
    assert alpha ** (1 / n) > 0.5
    assert alpha ** (1 / (n - 1)) <= 0.5 + 1e-12
    pair = least_certifying_n(alpha, bound="pair")
    assert 0.5**pair <= alpha < 0.5 ** (pair - 1)
    assert least_certifying_n(alpha, mode="sequential") >= n
    assert least_certifying_n(alpha, mode="sequential", bound="pair") >= n


def test_hopeless_sample_sizes_are_refused():
    with pytest.raises(ValueError, match=r"n is 9.*at least 10"):
        check_samples(n0=10, n=9, alpha=0.001)
    with pytest.raises(ValueError, match="n0 is 0"):
        check_samples(n0=0, n=100, alpha=0.001)
    with pytest.raises(ValueError, match="alpha is 0"):
        check_samples(n0=1, n=100, alpha=0)
    with pytest.raises(ValueError, match="must agree"):
        certify(selection=[1, 2, 3], estimation=[100, 0], sigma=1, alpha=0.001)
