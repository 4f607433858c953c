"""Soundness 2, the step: equal to guided_diffusion's without guidance, to the paper's Algorithm 2 with it."""

import numpy as np
import pytest
import torch

from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import Noise
from adds.diffusion.reverse import reverse_step
from adds.diffusion.schedule import evenly_spaced
from adds.methods.adds import guide
from adds.methods.base import Query
from adds.methods.release import Subject
from adds.models.pipeline import Pipeline
from tests.conftest import unet_pipeline
from tests.test_schedule import peer


@pytest.mark.parametrize("step", range(20))
def test_unguided_step_is_guided_diffusions_p_sample(schedule, unet, monkeypatch, step):
    timesteps = evenly_spaced(20, 1000)
    pipeline = unet_pipeline(schedule, unet, batch_size=5)
    generator = torch.Generator().manual_seed(step)
    x_t, normal = (torch.randn(5, 1, 8, 8, generator=generator) for _ in range(2))
    monkeypatch.setattr("guided_diffusion.gaussian_diffusion.th.randn_like", lambda _: normal)
    expected = peer(timesteps).p_sample(unet, x_t, torch.full((5,), step))

    prediction = pipeline.denoiser.predict(x_t, pipeline.grid, step)
    x_prev = reverse_step(x_t=x_t, x0=prediction.x0, std=prediction.std, normal=normal, grid=pipeline.grid, step=step)
    torch.testing.assert_close(prediction.x0, expected["pred_xstart"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(x_prev, expected["sample"], rtol=1e-5, atol=1e-5)


class Uneven:
    """A noise predictor whose variance differs by coordinate and by state, also outside the nominal range."""

    def __call__(self, x_t, timesteps):
        eps = torch.tanh(x_t) + 0.001 * timesteps.view(-1, 1, 1, 1)
        mood = torch.sin(40 * x_t.mean(dim=(1, 2, 3), keepdim=True))
        return torch.cat([eps, torch.sin(3 * x_t) + mood], dim=1)


def algorithm_2(x, sigma, s, x_T, normals, alphas_bar):
    """The paper's Algorithm 2 for one trajectory in float64, with mu^2 and the appendix's last scale.

    ``alphas_bar[t]`` belongs to t = 1, ..., T, ``normals[t]`` to the noise of that step. Returns the state at
    which every coordinate's budget is spent and the t that comes next.
    """
    x = 2 * x.astype(np.float64) - 1
    x_t = x_T.astype(np.float64)
    budget = np.full(x.shape, 1 / (2 * sigma) ** 2)
    T = len(alphas_bar) - 1
    for t in range(T, 1, -1):
        abar, abar_prev = alphas_bar[t], alphas_bar[t - 1]
        alpha = abar / abar_prev
        timestep = 50 * t - 1
        eps = np.tanh(x_t) + 0.001 * timestep
        beta = 1 - alpha
        posterior = beta * (1 - abar_prev) / (1 - abar)
        share = (np.sin(3 * x_t) + np.sin(40 * x_t.mean()) + 1) / 2
        variance = np.exp(share * np.log(beta) + (1 - share) * np.log(posterior))
        x0 = np.clip((x_t - np.sqrt(1 - abar) * eps) / np.sqrt(abar), -1, 1)
        price = abar_prev * (1 - alpha) ** 2 / ((1 - abar) ** 2 * variance)
        affordable = s**2 * price <= budget
        used = np.where(affordable, s, np.sqrt(budget / price))
        budget = np.where(affordable, budget - s**2 * price, 0.0)
        x0 = x0 + used * (x - x0)
        mean = np.sqrt(abar_prev) * (1 - alpha) / (1 - abar) * x0
        mean += (1 - abar_prev) * np.sqrt(alpha) / (1 - abar) * x_t
        x_t = mean + np.sqrt(variance) * normals[t]
        if (budget == 0).all():
            return x_t, t - 1
    return x_t, 1


@pytest.mark.parametrize("sigma", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("scale", [0.5, 0.9])
def test_guided_steps_are_the_papers_algorithm_2(schedule, image, classifierless, sigma, scale):
    pipeline = classifierless
    noise = Noise(seed=0, stage="estimation", image=0, sigma=sigma)
    samples = torch.arange(20)
    guided = guide(pipeline, Query(sigma, guidance_scale=scale), Subject(image, samples, noise))
    alphas_bar = np.append(1.0, schedule.alphas_bar[49::50])
    start = noise.normal((1, 8, 8), samples=samples, timestep=1000).numpy()
    normals = {t: noise.normal((1, 8, 8), samples=samples, timestep=50 * t - 1).numpy() for t in range(2, 21)}
    for i in range(len(samples)):
        own = {t: normal[i] for t, normal in normals.items()}
        state, t = algorithm_2(image.numpy(), sigma, scale, start[i], own, alphas_bar)
        assert int(guided.steps[i]) == t - 1
        np.testing.assert_allclose(guided.states[i].numpy(), state, rtol=2e-3, atol=2e-3)


@pytest.fixture
def classifierless(schedule):
    return Pipeline(
        Denoiser(Uneven(), schedule, batch_size=8),
        None,  # type: ignore[arg-type]
        schedule.respaced(evenly_spaced(20, 1000)),
    )


def test_trajectories_run_out_at_different_steps(classifierless, image):
    noise = Noise(seed=0, stage="estimation", image=0, sigma=0.6)
    guided = guide(classifierless, Query(0.6, guidance_scale=0.7), Subject(image, torch.arange(200), noise))
    assert len(guided.steps.unique()) > 1
    assert classifierless.denoiser.evaluations == int((19 - guided.steps).sum())
