"""Coverage on a few thousand simulated images; the full tables are in docs/coverage.md."""

import numpy as np
import pytest
from scipy import stats
from studies import exact_coverage
from studies.simulate_coverage import WORLDS, fixed_failures, lines, log_evidence_against, sequential_failures

from adds.certificates.betting import log_evidence_of_leads

IMAGES, ALPHA = 4000, 0.02
LIMIT = stats.binom.ppf(0.9999, IMAGES, ALPHA)

BY_NAME = {world.name: world for world in WORLDS}
TIE = BY_NAME["two classes, p = 0.5"]
FEW = [TIE.name, "two classes, p = 0.99", "three-way tie", "tie of two among ten", "40% with a lead of 0.5"]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_fixed_cohen(world):
    assert fixed_failures(world, "cohen", n=500, images=IMAGES, alpha=ALPHA, seed=0) <= LIMIT


@pytest.mark.parametrize("world", [*FEW, "36% against two at 32%", "65% with a lead of 1"])
def test_fixed_pair(world):
    assert fixed_failures(BY_NAME[world], "pair", n=100, images=IMAGES, alpha=ALPHA, seed=0) <= LIMIT


@pytest.mark.parametrize("bound", ["cohen", "pair"])
@pytest.mark.parametrize("world", FEW)
def test_sequential(monkeypatch, world, bound):
    monkeypatch.setattr("studies.simulate_coverage.MOST", 500)
    assert sequential_failures(BY_NAME[world], bound, images=IMAGES, alpha=ALPHA, seed=0) <= LIMIT


@pytest.mark.parametrize("bound", ["cohen", "pair"])
def test_a_bound_that_is_too_tight_is_noticed(monkeypatch, bound):
    """Ten times the level must show, or the simulation could not fail."""
    assert fixed_failures(TIE, bound, n=100, images=IMAGES, alpha=10 * ALPHA, seed=0) > LIMIT
    monkeypatch.setattr("studies.simulate_coverage.MOST", 500)
    assert sequential_failures(TIE, bound, images=IMAGES, alpha=30 * ALPHA, seed=0) > LIMIT


def test_the_simulation_asks_the_evidence_that_certificates_ask():
    top, other = np.array([40, 70, 100, 0]), np.array([30, 10, 0, 60])
    expected = [log_evidence_of_leads(int(a), int(b), 100) for a, b in zip(top, other, strict=True)]
    for step in (1, 25, 400):
        np.testing.assert_allclose(
            log_evidence_against(step, top, other, 100), [row[step - 1] for row in expected], rtol=1e-9
        )


def test_table(monkeypatch):
    monkeypatch.setattr("studies.simulate_coverage.WORLDS", WORLDS[:1])
    monkeypatch.setattr("studies.simulate_coverage.MOST", 64)
    text = "\n".join(lines(images=500, alpha=0.05))
    assert text.count("| yes |") == 5


def test_exact_tables(monkeypatch):
    """What is summed is probability 1 in all, and what is followed from sample to sample has the same distribution."""
    monkeypatch.setattr(exact_coverage, "SAMPLES", (8,))
    monkeypatch.setattr(exact_coverage, "HORIZON", 6)
    assert len([*exact_coverage.fixed_lines()]) == 2 + len(exact_coverage.ALPHAS)
    assert len([*exact_coverage.sequential_lines()]) == 2 + len(exact_coverage.LEADS) * len(exact_coverage.ALPHAS)
    classes = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(exact_coverage._probability(exact_coverage.outcomes(8, 3), classes), 1)
    only = np.zeros((9, 9, 9), dtype=bool)
    only[8, 5, 2] = True
    np.testing.assert_allclose(
        exact_coverage.ever(only, classes), [stats.multinomial.pmf([5, 2, 1], 8, row) for row in classes]
    )


@pytest.mark.parametrize("rest", exact_coverage.RESTS, ids=lambda rest: rest.title)
def test_exact_tables_ask_about_images_with_the_lead_they_say(rest):
    for lead in (0.0, 0.5, 1.0):
        classes = exact_coverage.images(lead, rest, 100)
        others = classes[:, 1] if rest.rivals == 0 else classes[:, 1:].max(axis=1)
        assert len(classes) > 3
        assert (1 - classes[:, 0] - others).min() >= rest.least - 1e-6
        assert rest.least > 0 or len(classes) == 100
        np.testing.assert_allclose(classes.sum(axis=1), 1)
        np.testing.assert_allclose(stats.norm.ppf(classes[:, 0]) - stats.norm.ppf(others), lead, atol=1e-9)
