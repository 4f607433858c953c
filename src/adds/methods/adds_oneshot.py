"""ADDS without unguided denoising: one x0 prediction from the state at which the budget is spent."""

import torch
from torch import Tensor

from adds.diffusion.noise import Noise
from adds.diffusion.reverse import Purified, one_each
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.adds import Guided, guide, guided_steps
from adds.methods.base import Ballots, Query, Work, classify
from adds.models.pipeline import Pipeline


def _finish(pipeline: Pipeline, guided: Guided) -> Tensor:
    """Predict x0 once where guidance ended."""
    images = torch.empty_like(guided.states)
    for step in guided.steps.unique().tolist():
        reached = guided.steps == step
        images[reached] = pipeline.denoiser.predict(guided.states[reached], pipeline.grid, step).x0
    return images


def purify(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Guide until the budget is spent, then denoise in one shot."""
    return one_each(_finish(pipeline, guide(pipeline, query, samples, noise)))


def vote(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Ballots:
    """Classify the one-shot image."""
    guided = guide(pipeline, query, samples, noise)
    ballots = classify(pipeline, _finish(pipeline, guided), budget_share=guided.budget_share)
    return guided.record_in(ballots, pipeline.grid)


def work(_schedule: Schedule, grid: Grid, query: Query) -> Work:
    """One more evaluation than there are guided steps."""
    return Work(guided_steps(grid, sigma=query.sigma, guidance_scale=query.guidance_scale) + 1, 1)
