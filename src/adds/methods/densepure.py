"""DensePure: noise once, denoise up to K times along the chain, take the majority vote."""

import torch

from adds.diffusion.reverse import Continuations, Purified
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, poll
from adds.methods.release import Release
from adds.models.pipeline import Pipeline


def entry(schedule: Schedule, grid: Grid, query: Query) -> tuple[Grid, int]:
    """Return the chain and the step at which the noised image enters it.

    ``grid`` enters at the grid's first timestep that is as noisy as sigma (the paper's way, as we read it);
    ``exact`` puts t* itself in front of the grid's timesteps below it (DensePure's own code).
    """
    if query.option("densepure", "start") == "grid":
        first = schedule.first_as_noisy_as(query.sigma, among=grid.timesteps)
        return grid, grid.timesteps.index(first)
    first = schedule.first_as_noisy_as(query.sigma)
    chain = schedule.respaced([t for t in grid.timesteps if t < first] + [first])
    return chain, len(chain) - 1


def _chains(pipeline: Pipeline, query: Query, release: Release) -> Continuations:
    """Return the independent reverse chains from one noised image."""
    chain, step = entry(pipeline.denoiser.schedule, pipeline.grid, query)
    return Continuations(
        pipeline.denoiser,
        chain,
        states=float(chain.alphas_bar[step]) ** 0.5 * release.y,
        steps=torch.full((len(release),), step, device=release.y.device),
        samples=release.samples,
        noise=release.noise,
    )


def purify(pipeline: Pipeline, query: Query, release: Release) -> Purified:
    """Run all ``query.votes`` chains."""
    return _chains(pipeline, query, release).run(query.all_votes)


def vote(pipeline: Pipeline, query: Query, release: Release) -> Ballots:
    """Classify the image at the end of every chain that can change the outcome."""
    return poll(pipeline, query, len(release), _chains(pipeline, query, release).run)


def work(schedule: Schedule, grid: Grid, query: Query) -> Work:
    """All chains share their first evaluation."""
    _, step = entry(schedule, grid, query)
    return Work(1 + query.votes * step, query.votes)
