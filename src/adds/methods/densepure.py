"""DensePure: noise once, denoise up to K times along the chain, take the majority vote."""

import torch

from adds.diffusion.reverse import Continuations, Purified
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, poll
from adds.methods.entering import enter, entry_timestep
from adds.methods.release import Release
from adds.models.pipeline import Pipeline


def entry(schedule: Schedule, grid: Grid, query: Query) -> tuple[Grid, int]:
    """Return the chain and the step at which the noised image enters it.

    ``grid`` enters at the grid's first timestep that is as noisy as sigma (the paper's way, as we read it);
    ``exact`` puts t* itself in front of the grid's timesteps below it (DensePure's own code).
    """
    first = entry_timestep(schedule, grid, query, "densepure")
    if first in grid.timesteps:
        return grid, grid.timesteps.index(first)
    chain = schedule.respaced([t for t in grid.timesteps if t < first] + [first])
    return chain, len(chain) - 1


def _chains(pipeline: Pipeline, query: Query, release: Release) -> Continuations:
    """Return the independent reverse chains from one noised image."""
    schedule = pipeline.denoiser.schedule
    chain, step = entry(schedule, pipeline.grid, query)
    return Continuations(
        pipeline.denoiser,
        chain,
        states=enter(schedule, chain.timesteps[step], query, "densepure", release),
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
