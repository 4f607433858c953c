import numpy as np
import pytest

from adds.certificates.certificate import certify
from adds.sampling.stopping import SampleSize, Stop

SIGMA, ALPHA = 0.5, 0.001


def counts(*values):
    return np.array(values, dtype=np.int64)


def reason(stop, *values):
    return stop.reason(counts(*values), 0, sigma=SIGMA, alpha=ALPHA)


@pytest.mark.parametrize("bound", ["cohen", "two_sided"])
def test_stops_as_soon_as_radius_zero_is_decided(bound):
    stop = Stop(radii=[0.0], bound=bound)
    assert reason(stop, 8, 0, 0) is None
    assert reason(stop, 32, 0, 0) == "decided"
    found = certify(
        selection=[1, 0, 0], estimation=[32, 0, 0], sigma=SIGMA, alpha=ALPHA, mode="sequential", bound=bound
    )
    assert not found.abstained, "what the rule calls decided the certificate must confirm"


def test_stops_for_futility():
    assert reason(Stop(bound="cohen"), 60, 240, 0) == "futile"
    assert reason(Stop(bound="two_sided"), 60, 240, 0) == "futile"
    assert reason(Stop(bound="cohen"), 130, 50, 50, 70) is None
    assert reason(Stop(radii=[0.6], bound="cohen"), 160, 140) == "futile", "p is surely below what 0.6 needs"


def test_two_sided_decides_where_cohen_cannot():
    assert reason(Stop(bound="two_sided"), 180, *[20] * 11) == "decided"
    assert reason(Stop(bound="cohen"), 180, *[20] * 11) is None


def test_a_grid_of_radii_needs_every_radius_decided():
    stop = Stop(radii=[0.0, 0.3], bound="cohen")
    assert reason(stop, 75, 25) is None
    assert reason(stop, 950, 50) == "decided"
    assert reason(stop, 6000, 4000) == "decided", "0 is certified and 0.3 is out of reach"


def test_tolerance():
    stop = Stop(rule="tolerance", tolerance=0.2, bound="cohen")
    assert reason(stop, 60, 40) is None
    assert reason(stop, 600, 400) == "tolerance"
    certified, possible = stop.range(counts(600, 400), 0, sigma=SIGMA, alpha=ALPHA)
    assert 0 < certified < SIGMA * 0.2533 < possible


def test_budget():
    size = SampleSize(n0=10, n=100, alpha=ALPHA, stop=Stop(rule="budget"))
    rule = size.estimation_rule(0, SIGMA)
    assert rule(counts(99, 0)) is None
    assert rule(counts(100, 0)) == "budget"


def test_selection_stops_when_the_leader_is_clear():
    rule = SampleSize(n0=1000, n=100, alpha=ALPHA, stop=Stop()).selection_rule()
    assert rule(counts(20, 18, 0)) is None
    assert rule(counts(30, 2, 0)) == "decided"
    assert rule(counts(500, 500, 0)) == "budget"
    fixed = SampleSize(n0=1000, n=100).selection_rule()
    assert fixed(counts(999, 0, 0)) is None
    assert fixed(counts(1000, 0, 0)) == "fixed"


def test_from_settings():
    stop = {"rule": "radii", "radii": [0.0], "tolerance": 0.1, "bound": "cohen"}
    size = SampleSize.from_settings({"mode": "sequential", "n0": 5, "n": 7, "alpha": 0.01, "stop": stop})
    assert size == SampleSize(5, 7, 0.01, Stop(**stop))
    assert SampleSize.from_settings({"mode": "fixed", "n0": 5, "n": 7, "alpha": 0.01}).stop is None


def test_bad_rules():
    with pytest.raises(ValueError, match=r"stop\.bound is 'hope'"):
        Stop(bound="hope")
    with pytest.raises(ValueError, match=r"stop.radii is \[-1\]"):
        Stop(radii=[-1])
    with pytest.raises(ValueError, match=r"stop\.tolerance is 0"):
        Stop(rule="tolerance", tolerance=0)
