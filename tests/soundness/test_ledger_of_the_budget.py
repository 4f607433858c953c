"""Soundness 1, the ledger: no coordinate of any trajectory ever spends more than mu^2."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adds.diffusion.noise import Noise
from adds.methods.adds import guide
from adds.methods.base import Query
from adds.methods.privacy import MIN_STD, SLIVER, BudgetExceededError, PrivacyFilter, squared_budget
from adds.methods.release import Subject
from tests.conftest import unet_pipeline

stds = st.one_of(
    st.just(0.0),
    st.floats(2.0**-100, 2.0**100, width=32),
    st.floats(2.0**-10, 8, width=32),
)


@given(
    sigma=st.floats(0.01, 100),
    scale=st.floats(0, 1),
    steps=st.lists(
        st.tuples(st.floats(1e-6, 1), st.lists(stds, min_size=4, max_size=4)),
        min_size=1,
        max_size=30,
    ),
)
@settings(max_examples=300)
def test_exact_sum_of_costs_never_exceeds_the_budget(sigma, scale, steps):
    privacy = PrivacyFilter(sigma=sigma, shape=(2, 2))
    spent = [Fraction(0)] * 4
    for coef_x0, values in steps:
        std = torch.tensor(values, dtype=torch.float32).view(2, 2)
        used = privacy.spend(scale=scale, coef_x0=coef_x0, std=std)
        assert bool((used.double() <= scale * (1 + 1e-6) + 1e-37).all())  # float32's least normal number
        for i, (s, noise) in enumerate(zip(used.flatten().tolist(), std.flatten().tolist(), strict=True)):
            if noise == 0:
                assert s == 0
            elif s > 0:
                spent[i] += (Fraction(s) * Fraction(coef_x0) / Fraction(noise)) ** 2
    limit = 1 / (2 * Fraction(sigma)) ** 2
    for i, total in enumerate(spent):
        assert total <= limit
        ledger = Fraction(float(privacy.spent.flatten()[i]))
        assert abs(ledger - total) <= limit / 10**9
        if scale > 0 and float(privacy.budget.flatten()[i]) == 0 and total > 0:
            assert total >= limit * (1 - 3 * Fraction(SLIVER))


def test_last_affordable_step_spends_exactly_the_rest():
    privacy = PrivacyFilter(sigma=0.5, shape=(1, 1))  # mu^2 = 1
    std = torch.ones(1, 1)
    assert float(privacy.spend(scale=0.8, coef_x0=1.0, std=std)) == pytest.approx(0.8)
    assert not bool(privacy.exhausted())
    assert float(privacy.spend(scale=0.8, coef_x0=1.0, std=std)) == pytest.approx(0.6, rel=2 * SLIVER)
    assert bool(privacy.exhausted())
    assert float(privacy.budget) == 0
    assert float(privacy.spend(scale=0.8, coef_x0=1.0, std=std)) == 0
    assert float(privacy.shares) == pytest.approx(1, abs=2 * SLIVER)
    assert float(privacy.shares) <= 1


def test_a_step_without_noise_is_never_guided_and_costs_nothing():
    privacy = PrivacyFilter(sigma=0.5, shape=(1, 2))
    used = privacy.spend(scale=1.0, coef_x0=1e-6, std=torch.tensor([[0.0, 1.0]]))
    assert used.tolist() == [[0.0, 1.0]]
    assert privacy.spent[0, 0] == 0
    assert privacy.budget[0, 0] == pytest.approx(1, abs=2 * SLIVER)


def test_noise_that_rounding_could_hide_does_not_count_as_noise():
    """Below MIN_STD a coordinate isn't guided, however little it would cost. `test_smoothing.py` has its bound."""
    privacy = PrivacyFilter(sigma=0.5, shape=(1, 2))
    std = torch.tensor([[0.9 * MIN_STD, 1.1 * MIN_STD]])
    used = privacy.spend(scale=1.0, coef_x0=1e-6, std=std)
    assert used.tolist() == [[0.0, 1.0]]
    assert privacy.spent[0, 0] == 0


def test_exhausted_needs_every_coordinate():
    privacy = PrivacyFilter(sigma=0.5, shape=(2, 2))
    privacy.spend(scale=1.0, coef_x0=1.0, std=torch.tensor([[0.1, 0.1], [0.1, 9.0]]))
    assert privacy.exhausted().tolist() == [True, False]
    privacy.keep(torch.nonzero(~privacy.exhausted()).flatten())
    assert privacy.budget.shape == (1, 2)


def test_budget_is_in_the_models_units():
    assert squared_budget(1.0) == 0.25
    assert squared_budget(0.25) == 4.0


def test_overspending_stops(monkeypatch):
    monkeypatch.setattr("adds.methods.privacy.affordable_scale", lambda **_: torch.ones(1, 1, dtype=torch.float64))
    privacy = PrivacyFilter(sigma=1.0, shape=(1, 1))
    with pytest.raises(BudgetExceededError, match="no result is written"):
        privacy.spend(scale=0.8, coef_x0=1.0, std=torch.ones(1, 1))


def test_hardly_too_much_is_too_much():
    privacy = PrivacyFilter(sigma=1.0, shape=(2, 1, 1, 2))
    privacy.spent[:] = privacy.squared_budget
    privacy.check()
    privacy.spent[1, 0, 0, 1] *= 1 + 1e-9
    with pytest.raises(BudgetExceededError):
        privacy.check()


@pytest.mark.parametrize("scale", [-0.1, 1.5, float("nan")])
def test_bad_scale(scale):
    with pytest.raises(ValueError, match=r"guidance scale is .*\[0, 1\]"):
        PrivacyFilter(sigma=1.0, shape=(1, 1)).spend(scale=scale, coef_x0=1.0, std=torch.ones(1, 1))


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan")])
def test_bad_sigma(sigma):
    with pytest.raises(ValueError, match="sigma is"):
        PrivacyFilter(sigma=sigma, shape=(1, 1))


def test_bad_std():
    with pytest.raises(ValueError, match="NaN"):
        PrivacyFilter(sigma=1.0, shape=(1, 1)).spend(scale=0.5, coef_x0=1.0, std=torch.tensor([[float("nan")]]))


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("scale", [0.3, 0.9, 1.0])
def test_real_trajectories_stay_within_the_budget(schedule, unet, image, sigma, scale):
    """Recompute the ledger of a real UNet's run from the scales and noises that were used."""
    pipeline = unet_pipeline(schedule, unet)
    spent: dict[int, torch.Tensor] = {}

    def observe(step):
        cost = (step.scale.double() * pipeline.grid.coef_x0[step.step] / step.std.double()) ** 2
        for sample, row in zip(step.samples.tolist(), cost, strict=True):
            spent[sample] = spent.get(sample, torch.zeros_like(row)) + row

    query = Query(sigma, guidance_scale=scale)
    noise = Noise(seed=0, stage="estimation", image=0, sigma=sigma)
    guided = guide(pipeline, query, Subject(image, torch.arange(32), noise), observe)
    totals = torch.stack(list(spent.values()))
    limit = 1 / (2 * sigma) ** 2
    assert totals.max() <= limit
    assert float(guided.budget_share.max()) == pytest.approx(float(totals.max()) / limit, rel=1e-9)
    reached_the_end = guided.steps == 0
    assert bool((totals[~reached_the_end] >= limit * (1 - 3 * SLIVER)).all())
