"""ADDS: guided denoising under a privacy filter (Algorithm 2), then unguided denoising with votes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from adds.diffusion.noise import Noise
from adds.diffusion.reverse import Continuations, Purified, reverse_step
from adds.diffusion.schedule import Grid, Schedule, to_model
from adds.methods.base import Ballots, Query, Work, poll
from adds.methods.privacy import PrivacyFilter
from adds.models.pipeline import Pipeline


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
    """Where guidance ended: every sample's state, and the step of the grid that it takes next.

    ``spent_before`` is the share of a sample's coordinates that had spent their budget before its last guided step,
    and took that step unguided.
    """

    states: Tensor
    steps: Tensor
    spent_before: Tensor
    budget_share: float

    def record_in(self, ballots: Ballots, grid: Grid) -> Ballots:
        """Add where guidance ended to what the samples voted for."""
        timesteps = torch.tensor(grid.timesteps, device=self.steps.device)[self.steps]
        return replace(ballots, stop_timestep=timesteps, spent_before=self.spent_before)


def guide(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise, observe: Observer | None = None) -> Guided:
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
    spent_before = torch.zeros(len(samples), device=denoiser.device)
    filter_ = PrivacyFilter(sigma=query.sigma, shape=tuple(x_t.shape), device=denoiser.device)
    active = torch.arange(len(samples), device=denoiser.device)
    for step in range(len(grid) - 1, 0, -1):
        prediction = denoiser.predict(x_t, grid, step)
        spent_before[active] = filter_.spent_shares()
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
    return Guided(states, steps, spent_before, filter_.largest_share)


def _continuations(pipeline: Pipeline, samples: Tensor, noise: Noise, guided: Guided) -> Continuations:
    """Return the unguided continuations of the guided trajectories.

    They see the image only through the state they start from, so they are post-processing and cost no budget; K
    guided trajectories would cost it K times.
    """
    return Continuations(
        pipeline.denoiser,
        pipeline.grid,
        states=guided.states,
        steps=guided.steps,
        samples=samples.to(guided.states.device),
        noise=noise,
    )


def purify(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Run ADDS with all K votes: guided until the budget is spent, then unguided to the end."""
    guided = guide(pipeline, query, samples, noise)
    return _continuations(pipeline, samples, noise, guided).run(query.all_votes)


def vote(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Ballots:
    """Classify the image at the end of every continuation that can change the outcome, and where they part."""
    guided = guide(pipeline, query, samples, noise)
    continuations = _continuations(pipeline, samples, noise, guided)
    ballots = poll(pipeline, query, samples, continuations.run, budget_share=guided.budget_share)
    oneshot = pipeline.classifier.predict(continuations.first)
    return guided.record_in(replace(ballots, contained={"adds_oneshot": oneshot}), pipeline.grid)


def guided_steps(grid: Grid, *, sigma: float, guidance_scale: float) -> int:
    """Return after how many steps the budget is spent, where the variance is the least of its range.

    Less noise makes guidance dearer, so this is the fewest that are to be expected, and the estimate of what
    follows them the highest.
    """
    if guidance_scale == 0:
        return len(grid) - 1
    budget = PrivacyFilter(sigma=sigma, shape=(1, 1, 1, 1))
    for taken, step in enumerate(range(len(grid) - 1, 0, -1), start=1):
        std = torch.full((1, 1, 1, 1), float(grid.log_variance_min[step])).mul(0.5).exp()
        budget.spend(scale=guidance_scale, coef_x0=float(grid.coef_x0[step]), std=std)
        if bool(budget.exhausted()):
            return taken
    return len(grid) - 1


def work(_schedule: Schedule, grid: Grid, query: Query) -> Work:
    """Votes share all steps up to the first evaluation after they part."""
    guided = guided_steps(grid, sigma=query.sigma, guidance_scale=query.guidance_scale)
    left = len(grid) - 1 - guided
    return Work(guided + 1 + query.votes * left, query.votes if left else 1)
