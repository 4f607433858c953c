"""Carlini et al.: diffusion denoised smoothing with one denoising step."""

from torch import Tensor

from adds.methods.base import Pipeline, Query
from adds.methods.rs import noised
from adds.noise import Noise
from adds.reverse import Purified, one_each


def carlini(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Embed the noised image at t*, the first of all timesteps as noisy as sigma, and predict x0 once.

    x_{t*} = sqrt(abar_{t*}) (x + N(0, sigma^2 I)): the noise is sigma's, not the timestep's own.
    """
    schedule = pipeline.denoiser.schedule
    grid = schedule.respaced([schedule.first_as_noisy_as(query.sigma)])
    x_t = float(grid.alphas_bar[0]) ** 0.5 * noised(pipeline, query, samples, noise)
    return one_each(pipeline.denoiser.predict(x_t, grid, 0).x0, budget_share=1.0)
