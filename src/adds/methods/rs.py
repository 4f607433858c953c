"""RS: plain randomized smoothing (Cohen et al.), the baseline with no denoiser."""

from torch import Tensor

from adds.methods.base import Pipeline, Query
from adds.noise import Noise
from adds.reverse import Purified, one_each
from adds.schedule import model_sigma, to_model


def noised(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Tensor:
    """Return x + N(0, sigma^2 I) in the model's units, where x is 2x - 1 and the noise 2 sigma."""
    image = query.image.to(pipeline.denoiser.device)
    normal = noise.normal(tuple(image.shape), samples=samples, timestep=len(pipeline.denoiser.schedule))
    return to_model(image) + model_sigma(query.sigma) * normal


def rs(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Give the noised image itself to the classifier."""
    return one_each(noised(pipeline, query, samples, noise), budget_share=1.0)
