"""RS: plain randomized smoothing (Cohen et al.), the baseline with no denoiser."""

from torch import Tensor

from adds.diffusion.noise import Noise
from adds.diffusion.schedule import Grid, Schedule, model_sigma, to_model
from adds.methods.base import Ballots, Query, Work, classify
from adds.models.pipeline import Pipeline


def noised(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Tensor:
    """Return x + N(0, sigma^2 I) in the model's units, where x is 2x - 1 and the noise 2 sigma."""
    image = query.image.to(pipeline.denoiser.device)
    normal = noise.normal(tuple(image.shape), samples=samples, timestep=len(pipeline.denoiser.schedule))
    return to_model(image) + model_sigma(query.sigma) * normal


def vote(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Ballots:
    """Give the noised image itself to the classifier."""
    return classify(pipeline, noised(pipeline, query, samples, noise), budget_share=1.0)


def work(_schedule: Schedule, _grid: Grid, _query: Query) -> Work:
    """One classification."""
    return Work(0, 1)
