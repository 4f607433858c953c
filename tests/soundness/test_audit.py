"""Soundness 3, the audit: the log-likelihood ratio of real trajectories obeys Gaussian differential privacy.

For trajectories drawn on x, the log-likelihood ratio against x + e has mean <= m^2 / 2 and variance <= m^2
with m = |e| / sigma, with equality when the whole budget is spent.
"""

import numpy as np
import pytest
import torch

from adds.diffusion.noise import Noise
from adds.diffusion.schedule import to_model
from adds.methods.adds import guide
from adds.methods.base import Query
from adds.methods.release import Subject
from tests.conftest import unet_pipeline

TRAJECTORIES = 2000


def log_likelihood_ratios(pipeline, image, changes, sigma, scale, trajectories=TRAJECTORIES):
    """log p(trajectory | x) / p(trajectory | x + change) for each change, from the states that were really drawn."""
    ratios = torch.zeros(len(changes), trajectories, dtype=torch.float64)
    grid = pipeline.grid

    def log_density(step, x):
        x0 = step.x0.double() + step.scale.double() * (to_model(x.double()) - step.x0.double())
        mean = grid.coef_x0[step.step] * x0 + grid.coef_xt[step.step] * step.x_t.double()
        return (-((step.x_prev.double() - mean) ** 2) / (2 * step.std.double() ** 2)).flatten(1).sum(1)

    def observe(step):
        for row, change in zip(ratios, changes, strict=True):
            row[step.samples] += log_density(step, image) - log_density(step, image + change)

    noise = Noise(seed=7, stage="estimation", image=0, sigma=sigma)
    query = Query(sigma, guidance_scale=scale)
    guided = guide(pipeline, query, Subject(image, torch.arange(trajectories), noise), observe)
    return ratios.numpy(), guided


def excess(ratios, m):
    """How many standard errors the mean is above m^2 / 2, and the variance above m^2."""
    n = len(ratios)
    mean = (ratios.mean() - m**2 / 2) / (ratios.std(ddof=1) / np.sqrt(n))
    variance = (ratios.var(ddof=1) - m**2) / (ratios.var(ddof=1) * np.sqrt(2 / (n - 1)))
    return mean, variance


@pytest.fixture(scope="module")
def directions():
    """Changes of the image of size 1: one at random, one that is the same everywhere."""
    random = torch.tensor(np.random.default_rng(1).normal(size=(1, 8, 8)), dtype=torch.float32)
    return [direction / direction.norm() for direction in (random, torch.ones(1, 8, 8))]


@pytest.mark.parametrize(("sigma", "scale"), [(0.5, 0.8), (1.0, 0.8), (2.0, 0.9)])
def test_privacy_loss_is_that_of_the_gaussian_mechanism(schedule, unet, image, directions, sigma, scale):
    pipeline = unet_pipeline(schedule, unet, batch_size=500)
    radius = 0.7 * sigma
    changes = [radius * direction for direction in directions]
    found, guided = log_likelihood_ratios(pipeline, image, changes, sigma, scale)
    assert bool((guided.steps > 0).all()), "the whole budget was meant to be spent here"
    for ratios in found:
        mean, variance = excess(ratios, radius / sigma)
        assert mean < 4
        assert variance < 4
        assert abs(mean) < 4
        assert abs(variance) < 4


@pytest.mark.parametrize(
    "broken",
    [lambda sigma: 1 / sigma**2, lambda sigma: 1 / (2 * sigma)],
    ids=["sigma for 2 sigma", "mu for mu^2"],
)
def test_the_audit_sees_a_wrong_budget(schedule, unet, image, directions, monkeypatch, broken):
    monkeypatch.setattr("adds.methods.privacy.squared_budget", broken)
    pipeline = unet_pipeline(schedule, unet, batch_size=500)
    changes = [1.05 * direction for direction in directions]
    for ratios in log_likelihood_ratios(pipeline, image, changes, 1.5, 0.8, trajectories=1000)[0]:
        mean, variance = excess(ratios, 0.7)
        assert mean > 10
        assert variance > 10
