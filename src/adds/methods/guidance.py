"""Guided denoising under a privacy filter (Algorithm 2), whoever guides: the image, or what was released of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from adds.diffusion.reverse import ByStep
from adds.diffusion.schedule import Grid
from adds.methods.base import Ballots, Query
from adds.methods.privacy import PrivacyFilter
from adds.models.pipeline import Pipeline


@dataclass(frozen=True)
class PaidStep:
    """A guided step that is paid for and not yet taken; tensors have a row for each trajectory that is still guided.

    ``active`` are the trajectories' positions in the batch. ``scale`` is what the filter allows each coordinate of the
    step from ``x_t`` with the prediction ``x0`` and noise of size ``std``; ``spent`` is the ledger with this step in.
    """

    step: int
    active: Tensor
    x_t: Tensor
    x0: Tensor
    std: Tensor
    scale: Tensor
    spent: Tensor


Take = Callable[[PaidStep], Tensor]
"""Takes a step, and returns the next states."""


@dataclass(frozen=True)
class Guided:
    """Where guidance ended: every trajectory's state, and the step of the grid that it takes next.

    ``evaluations`` counts those of each trajectory. ``spent_before`` is the share of its coordinates that had spent
    their budget before its last guided step, and took that step unguided; ``budget_share`` the largest share of its
    budget that one of them spent in all.
    """

    states: Tensor
    steps: Tensor
    evaluations: Tensor
    spent_before: Tensor
    budget_share: Tensor

    def record_in(self, ballots: Ballots, grid: Grid) -> Ballots:
        """Add how guidance went, and one prediction where it ended, to what the samples voted for."""
        return replace(
            ballots,
            shared_evaluations=self.evaluations + 1,
            budget_share=self.budget_share,
            stop_timestep=torch.tensor(grid.timesteps, device=self.steps.device)[self.steps],
            spent_before=self.spent_before,
        )


def walk(pipeline: Pipeline, query: Query, start: Tensor, take: Take, *, to_the_end: bool = False) -> Guided:
    """Walk from x_T = ``start`` along the grid, guided with the scale that Algorithm 1 allows each coordinate.

    A trajectory leaves when every coordinate has spent its budget, or ``to_the_end`` goes on unguided. Step 0 adds no
    noise, so guiding it would cost infinitely much: whoever still has budget there keeps it.
    """
    grid, x_t = pipeline.grid, start
    states = torch.empty_like(start)
    steps = torch.zeros(len(start), dtype=torch.long, device=start.device)
    evaluations, spent_before = torch.zeros_like(steps), torch.zeros(len(start), device=start.device)
    budget_share = torch.zeros(len(start), dtype=torch.float64, device=start.device)
    filter_ = PrivacyFilter(sigma=query.sigma, shape=tuple(start.shape), device=start.device)
    active = torch.arange(len(start), device=start.device)
    for step in range(len(grid) - 1, 0, -1):
        prediction = pipeline.denoiser.predict(x_t, grid, step)
        evaluations[active] += 1
        spent_before[active] = filter_.spent_shares()
        scale = filter_.spend(scale=query.guidance_scale, coef_x0=float(grid.coef_x0[step]), std=prediction.std)
        budget_share[active] = filter_.shares
        x_t = take(PaidStep(step, active, x_t, prediction.x0, prediction.std, scale, filter_.spent))
        if to_the_end:
            continue
        staying, leaving = _parted(filter_.exhausted())
        states[active[leaving]], steps[active[leaving]] = x_t[leaving], step - 1
        x_t, active = x_t[staying], active[staying]
        filter_.keep(staying)
        if len(active) == 0:
            break
    states[active] = x_t
    return Guided(states, steps, evaluations, spent_before, budget_share)


def _parted(leaves: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of those that stay and of those that leave: a GPU is waited for once, not for every mask."""
    order = leaves.byte().argsort(stable=True)
    staying = len(leaves) - int(leaves.sum())
    return order[:staying], order[staying:]


def predict_once(pipeline: Pipeline, guided: Guided) -> Tensor:
    """Predict x0 once where each trajectory ended."""
    images = torch.empty_like(guided.states)
    steps = ByStep(guided.steps)
    for step in range(steps.highest, -1, -1):
        reached = steps.at(step)
        images[reached] = pipeline.denoiser.predict(guided.states[reached], pipeline.grid, step).x0
    return images


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
