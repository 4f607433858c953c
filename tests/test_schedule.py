import numpy as np
import pytest
from guided_diffusion import gaussian_diffusion as gd
from guided_diffusion.respace import SpacedDiffusion, space_timesteps

from adds.diffusion.schedule import Schedule, evenly_spaced, model_sigma


def peer(timesteps):
    return SpacedDiffusion(
        use_timesteps=timesteps,
        betas=gd.get_named_beta_schedule("linear", 1000),
        model_mean_type=gd.ModelMeanType.EPSILON,
        model_var_type=gd.ModelVarType.LEARNED_RANGE,
        loss_type=gd.LossType.RESCALED_MSE,
    )


@pytest.mark.parametrize("timesteps", [evenly_spaced(20, 1000), (3, 17, 400, 999), range(1000)])
def test_coefficients_are_those_of_guided_diffusion(schedule, timesteps):
    grid, reference = schedule.respaced(timesteps), peer(timesteps)
    np.testing.assert_array_equal(grid.timesteps, reference.timestep_map)
    np.testing.assert_allclose(grid.alphas_bar, reference.alphas_cumprod, rtol=1e-10)
    np.testing.assert_allclose(grid.coef_x0, reference.posterior_mean_coef1, rtol=1e-8)
    np.testing.assert_allclose(grid.coef_xt, reference.posterior_mean_coef2, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(grid.log_variance_min, reference.posterior_log_variance_clipped, rtol=1e-8)
    np.testing.assert_allclose(grid.log_variance_max, np.log(reference.betas), rtol=1e-8)


def test_paper_grid_is_not_guided_diffusions_own():
    grid = evenly_spaced(20, 1000)
    assert grid[:3] == (999, 949, 899)
    assert grid[-1] == 49
    assert set(grid) != space_timesteps(1000, "20")


@pytest.mark.parametrize(("sigma", "entry"), [(1.0, 399), (1.5, 499), (2.0, 549)])
def test_densepure_entry_of_the_paper(schedule, sigma, entry):
    assert schedule.first_as_noisy_as(sigma, among=evenly_spaced(20, 1000)) == entry


@pytest.mark.parametrize("sigma", [0.25, 1.0, 2.0])
def test_t_star_is_the_first_timestep_as_noisy_as_two_sigma(schedule, sigma):
    t_star = schedule.first_as_noisy_as(sigma)
    ratio = np.sqrt((1 - schedule.alphas_bar) / schedule.alphas_bar)
    assert ratio[t_star] >= 2 * sigma > ratio[t_star - 1]
    assert model_sigma(sigma) == 2 * sigma


@pytest.mark.parametrize(
    ("timesteps", "message"),
    [
        ([], "empty"),
        ([1000], r"\[1000\] are not in the schedule"),
        ([-1, 5], "not in"),
        ([5, 5], "duplicates"),
    ],
)
def test_bad_timesteps(schedule, timesteps, message):
    with pytest.raises(ValueError, match=message):
        schedule.respaced(timesteps)


def test_bad_schedules(schedule):
    with pytest.raises(ValueError, match="'quadratic' is not known"):
        Schedule.named("quadratic", 1000)
    with pytest.raises(ValueError, match="sigma 100 is more noise"):
        schedule.first_as_noisy_as(100)
    with pytest.raises(ValueError, match="7 steps"):
        evenly_spaced(7, 1000)
