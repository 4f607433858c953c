"""Soundness 7, nothing changes unnoticed: code that gives other counts gives them another identity."""

import pytest

from adds.registry import BOUNDS, METHODS
from tests.soundness.golden import ballots_of, checksum, radii_of


@pytest.mark.parametrize("name", METHODS)
def test_ballots_are_those_of_the_record(name):
    found = checksum(ballots_of(name))
    assert METHODS[name].counts == found, (
        f'{name} gives other ballots than before. If so it should be, adds/registry.py gets counts="{found}"'
    )


@pytest.mark.parametrize("name", BOUNDS)
def test_radii_are_those_of_the_record(name):
    found = checksum(radii_of(name))
    assert BOUNDS[name].radii == found, (
        f'{name} gives other radii than before. If so it should be, adds/registry.py gets radii="{found}"'
    )


def test_the_runs_are_varied_enough_to_notice(monkeypatch):
    """Ballots differ between samples; another vote's rule, or mu in place of mu^2, shows."""
    before = ballots_of("adds")
    assert len({tuple(sample) for sample in before[0]}) > 2
    monkeypatch.setattr("tests.soundness.golden.majority", lambda ballots: ballots[:, -1])
    assert ballots_of("adds") != before
    monkeypatch.undo()
    monkeypatch.setattr("adds.methods.privacy.squared_budget", lambda sigma: 1 / (2 * sigma))
    assert ballots_of("adds") != before
