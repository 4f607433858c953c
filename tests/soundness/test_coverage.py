"""Coverage on a few thousand simulated images; the full table is in docs/coverage.md."""

import pytest
from scipy import stats
from studies.simulate_coverage import WORLDS, fixed_failures, lines, sequential_failures

IMAGES, ALPHA = 4000, 0.02
LIMIT = stats.binom.ppf(0.9999, IMAGES, ALPHA)


@pytest.mark.parametrize("bound", ["cohen", "two_sided"])
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_fixed(world, bound):
    assert fixed_failures(world, bound, n=500, images=IMAGES, alpha=ALPHA, seed=0) <= LIMIT


@pytest.mark.parametrize("bound", ["cohen", "two_sided"])
@pytest.mark.parametrize("world", [WORLDS[3], WORLDS[8], WORLDS[9], WORLDS[11]], ids=lambda world: world.name)
def test_sequential(monkeypatch, world, bound):
    monkeypatch.setattr("studies.simulate_coverage.MOST", 500)
    assert sequential_failures(world, bound, images=IMAGES, alpha=ALPHA, seed=0) <= LIMIT


def test_a_bound_that_is_too_tight_is_noticed(monkeypatch):
    """Ten times the level must show, or the simulation could not fail."""
    assert fixed_failures(WORLDS[3], "cohen", n=500, images=IMAGES, alpha=10 * ALPHA, seed=0) > LIMIT
    monkeypatch.setattr("studies.simulate_coverage.MOST", 500)
    assert sequential_failures(WORLDS[3], "cohen", images=IMAGES, alpha=30 * ALPHA, seed=0) > LIMIT


def test_table(monkeypatch):
    monkeypatch.setattr("studies.simulate_coverage.WORLDS", WORLDS[:1])
    monkeypatch.setattr("studies.simulate_coverage.MOST", 64)
    text = "\n".join(lines(images=500, alpha=0.05))
    assert text.count("| yes |") == 5
