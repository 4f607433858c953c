"""Carlini et al.: diffusion denoised smoothing with one denoising step."""

from torch import Tensor

from adds.diffusion.noise import Noise
from adds.diffusion.reverse import Purified, one_each
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, classify
from adds.methods.rs import noised
from adds.models.pipeline import Pipeline


def purify(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Embed the noised image at t*, the first of all timesteps as noisy as sigma, and predict x0 once.

    x_{t*} = sqrt(abar_{t*}) (x + N(0, sigma^2 I)): the noise is sigma's, not the timestep's own.
    """
    schedule = pipeline.denoiser.schedule
    grid = schedule.respaced([schedule.first_as_noisy_as(query.sigma)])
    x_t = float(grid.alphas_bar[0]) ** 0.5 * noised(pipeline, query, samples, noise)
    return one_each(pipeline.denoiser.predict(x_t, grid, 0).x0)


def vote(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Ballots:
    """Classify the denoised image."""
    return classify(pipeline, purify(pipeline, query, samples, noise).images, budget_share=1.0)


def work(_schedule: Schedule, _grid: Grid, _query: Query) -> Work:
    """One evaluation, one classification."""
    return Work(1, 1)
