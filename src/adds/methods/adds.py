"""ADDS: guided denoising under a privacy filter (Algorithm 2), with and without unguided denoising after it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from adds.methods.base import Pipeline, Query
from adds.noise import Noise
from adds.privacy import PrivacyFilter
from adds.reverse import Purified, denoise_unguided, one_each, reverse_step
from adds.schedule import to_model


@dataclass(frozen=True)
class GuidedStep:
    """One guided step as it was really taken, for audits and for the figure of the budget.

    ``samples`` are the numbers of the trajectories that are still guided; tensors have one row for each.
    """

    step: int
    samples: Tensor
    x_t: Tensor
    x0: Tensor
    scale: Tensor
    std: Tensor
    x_prev: Tensor
    spent: Tensor


Observer = Callable[[GuidedStep], None]


@dataclass(frozen=True)
class Guided:
    """Where guidance ended: every sample's state, and the step of the grid that it takes next."""

    states: Tensor
    steps: Tensor
    budget_share: float


def guide(
    pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise, observe: Observer | None = None
) -> Guided:
    """Algorithm 2 (Clean Image Guided Denoising) up to the step at which the budget is spent.

    Start from x_T ~ N(0, I). At each step move the predicted x0 towards the image,
    x0 <- x0 + s (x - x0), with the scale s that Algorithm 1 allows each coordinate, and take the step. A
    trajectory leaves when every coordinate has spent its budget. Step 0 adds no noise, so guiding it would
    cost infinitely much: whoever still has budget there keeps it.
    """
    denoiser, grid = pipeline.denoiser, pipeline.grid
    image = to_model(query.image.to(denoiser.device))
    samples = samples.to(denoiser.device)
    x_t = noise.normal(tuple(image.shape), samples=samples, timestep=len(denoiser.schedule))
    states = torch.empty_like(x_t)
    steps = torch.zeros(len(samples), dtype=torch.long, device=denoiser.device)
    filter_ = PrivacyFilter(sigma=query.sigma, shape=tuple(x_t.shape), device=denoiser.device)
    active = torch.arange(len(samples), device=denoiser.device)
    for step in range(len(grid) - 1, 0, -1):
        prediction = denoiser.predict(x_t, grid, step)
        scale = filter_.spend(scale=query.guidance_scale, coef_x0=float(grid.coef_x0[step]), std=prediction.std)
        normal = noise.normal(tuple(image.shape), samples=samples[active], timestep=grid.timesteps[step])
        x_prev = reverse_step(
            x_t=x_t,
            x0=prediction.x0 + scale * (image - prediction.x0),
            std=prediction.std,
            normal=normal,
            grid=grid,
            step=step,
        )
        if observe is not None:
            observe(
                GuidedStep(
                    step,
                    samples[active],
                    x_t,
                    prediction.x0,
                    scale,
                    prediction.std,
                    x_prev,
                    filter_.spent,
                )
            )
        done = filter_.exhausted()
        states[active[done]], steps[active[done]] = x_prev[done], step - 1
        x_t, active = x_prev[~done], active[~done]
        filter_.keep(~done)
        if len(active) == 0:
            break
    states[active] = x_t
    return Guided(states, steps, filter_.largest_share)


def adds(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Run ADDS with K votes: K unguided continuations of the one guided trajectory.

    The continuations see the image only through the state they start from, so they are post-processing and
    cost no budget; K guided trajectories would cost it K times.
    """
    guided = guide(pipeline, query, samples, noise)
    return denoise_unguided(
        pipeline.denoiser,
        pipeline.grid,
        states=guided.states,
        steps=guided.steps,
        samples=samples.to(guided.states.device),
        votes=query.votes,
        noise=noise,
        budget_share=guided.budget_share,
    )


def adds_oneshot(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Run ADDS without unguided denoising: one x0 prediction from the state at which the budget is spent."""
    guided = guide(pipeline, query, samples, noise)
    images = torch.empty_like(guided.states)
    for step in guided.steps.unique().tolist():
        reached = guided.steps == step
        images[reached] = pipeline.denoiser.predict(guided.states[reached], pipeline.grid, step).x0
    return one_each(images, budget_share=guided.budget_share)
