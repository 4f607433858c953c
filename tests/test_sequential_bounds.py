import pytest
from studies.compare_sequential_bounds import BOUNDS, mean_samples


@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_of_the_comparison_is_anytime_valid(name, monkeypatch):
    """At p = 1/2 a bound may show p > 1/2 in at most alpha of the paths, however long one looks."""
    monkeypatch.setattr("studies.compare_sequential_bounds.MOST", 1600)
    paths, alpha = 400, 0.05
    shown = BOUNDS[name]
    mean = mean_samples(shown, 0.5, paths=paths, alpha=alpha)
    assert mean > 1600 * (1 - 2 * alpha)


def test_ours_is_hard_to_beat():
    means = {name: mean_samples(shown, 0.8, paths=60, alpha=0.0005) for name, shown in BOUNDS.items()}
    assert means["truncated mixture (ours)"] == min(means.values())
