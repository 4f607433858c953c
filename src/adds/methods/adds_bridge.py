"""ADDS with K guided votes (ours): K guided trajectories of one release, each a Brownian bridge to it.

The paper's votes share one guided trajectory, because K of them would cost the privacy budget K times. But a guided
trajectory is a look at one y = x + N(0, sigma^2 I), and given y it can be drawn without the image (docs/smoothing.md).
So y is released once, and any number of trajectories that lead to it cost nothing more.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from adds.diffusion.reverse import Purified
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, poll
from adds.methods.guidance import Guided, PaidStep, guided_steps, predict_once, walk
from adds.methods.privacy import squared_budget, unit_cost
from adds.methods.release import Release
from adds.models.pipeline import Pipeline


class Bridge:
    """What a batch of trajectories has seen of y so far: W, a Brownian bridge from (0, 0) to (mu^2, mu^2 y).

    Its clock is what was spent of mu^2. In a step of cost lambda, with L left of mu^2 before it,

        dW ~ N((mu^2 y - W) lambda / L, lambda (1 - lambda / L)).
    """

    def __init__(self, y: Tensor, sigma: float) -> None:
        self.target = squared_budget(sigma) * y.double()
        self.seen = torch.zeros_like(self.target)
        self.left = torch.full_like(self.target, squared_budget(sigma))

    def advance(self, active: Tensor, cost: Tensor, normal: Tensor) -> Tensor:
        """Draw the increments dW of the trajectories at these positions."""
        seen, left = self.seen[active], self.left[active]
        share = cost / left
        increment = (self.target[active] - seen) * share + (cost * (1 - share)).sqrt() * normal
        self.seen[active], self.left[active] = seen + increment, left - cost
        return increment


def bridges(pipeline: Pipeline, query: Query, release: Release, votes: Sequence[int], owners: Tensor) -> Guided:
    """Draw guided trajectories to the y of the samples at these positions: all votes of the first, then of the next.

    A guided step x_{t-1} = c0 ((1 - s) x0 + s x) + c1 x_t + std z tells of x as much as its increment
    dW = (c0 s / std^2) (x_{t-1} - c1 x_t - c0 (1 - s) x0), at the cost lambda = (c0 s / std)^2. So a bridge's dW gives

        x_{t-1} = c0 (1 - s) x0 + c1 x_t + std^2 / (c0 s) dW,

    which has the law of Algorithm 2's step. Where s = 0 the step is unguided.
    """
    grid, shape = pipeline.grid, tuple(release.y.shape[1:])
    owner = owners.repeat_interleave(len(votes))
    numbers = {"samples": release.samples[owner], "votes": torch.tensor(votes, device=owner.device).repeat(len(owners))}
    bridge = Bridge(release.y[owner], query.sigma)

    def take(paid: PaidStep) -> Tensor:
        coef_x0, coef_xt = float(grid.coef_x0[paid.step]), float(grid.coef_xt[paid.step])
        own = {name: number[paid.active] for name, number in numbers.items()}
        normal = release.noise.normal(shape, **own, timestep=grid.timesteps[paid.step]).double()
        scale, std = paid.scale.double(), paid.std.double()
        guided = scale > 0
        cost = torch.where(guided, scale.square() * unit_cost(coef_x0=coef_x0, std=paid.std), 0.0)
        increment = bridge.advance(paid.active, cost, normal)
        pull = std.square() / (coef_x0 * torch.where(guided, scale, 1.0)) * increment
        offset = coef_x0 * (1 - scale) * paid.x0.double() + coef_xt * paid.x_t.double()
        return (offset + torch.where(guided, pull, std * normal)).to(paid.x_t.dtype)

    start = release.noise.normal(shape, **numbers, timestep=len(pipeline.denoiser.schedule))
    to_the_end = query.option("adds_bridge", "ending") == "denoised"
    return walk(pipeline, query, start, take, to_the_end=to_the_end)


def _run(pipeline: Pipeline, query: Query, release: Release, votes: Sequence[int], owners: Tensor) -> Purified:
    """Denoise some votes of the samples at some positions: votes have nothing in common but y."""
    guided = bridges(pipeline, query, release, votes, owners)
    return Purified(
        predict_once(pipeline, guided),
        owner=owners.repeat_interleave(len(votes)),
        vote=torch.tensor(votes, device=owners.device).repeat(len(owners)),
        evaluations=guided.evaluations + 1,
    )


def purify(pipeline: Pipeline, query: Query, release: Release) -> Purified:
    """Run all K bridges, each denoised to the end of the chain, or in one shot where its budget is spent."""
    return _run(pipeline, query, release, query.all_votes, torch.arange(len(release), device=release.y.device))


def vote(pipeline: Pipeline, query: Query, release: Release) -> Ballots:
    """Classify the image of every bridge that can change the outcome."""

    def run(votes: Sequence[int], owners: Tensor) -> Purified:
        return _run(pipeline, query, release, votes, owners)

    return poll(pipeline, query, len(release), run)


def posterior(pipeline: Pipeline, query: Query, release: Release) -> Tensor:
    """Return the mean of the classifier's probabilities over the K bridges: [n, classes]."""
    purified = purify(pipeline, query, release)
    return pipeline.classifier.probabilities(purified.images).view(len(release), query.votes, -1).mean(dim=1)


def work(_schedule: Schedule, grid: Grid, query: Query) -> Work:
    """Every bridge takes its guided steps and one evaluation more, or walks the whole grid."""
    guided = guided_steps(grid, sigma=query.sigma, guidance_scale=query.guidance_scale) + 1
    each = len(grid) if query.option("adds_bridge", "ending") == "denoised" else guided
    return Work(query.votes * each, query.votes)
