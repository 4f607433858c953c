"""Carlini et al.: diffusion denoised smoothing with one denoising step."""

from torch import Tensor

from adds.diffusion.denoiser import Denoiser
from adds.diffusion.reverse import Purified, one_each
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, classify
from adds.methods.release import Release
from adds.models.pipeline import Pipeline


def denoise(denoiser: Denoiser, y: Tensor, sigma: float) -> Tensor:
    """Embed noised images at t*, the first of all timesteps as noisy as sigma, and predict x0 once.

    x_{t*} = sqrt(abar_{t*}) (x + N(0, sigma^2 I)): the noise is sigma's, not the timestep's own.
    """
    schedule = denoiser.schedule
    grid = schedule.respaced([schedule.first_as_noisy_as(sigma)])
    return denoiser.predict(float(grid.alphas_bar[0]) ** 0.5 * y, grid, 0).x0


def purify(pipeline: Pipeline, query: Query, release: Release) -> Purified:
    """Denoise once."""
    return one_each(denoise(pipeline.denoiser, release.y, query.sigma))


def vote(pipeline: Pipeline, query: Query, release: Release) -> Ballots:
    """Classify the denoised image."""
    return classify(pipeline.classifier, purify(pipeline, query, release).images)


def work(_schedule: Schedule, _grid: Grid, _query: Query) -> Work:
    """One evaluation, one classification."""
    return Work(1, 1)
