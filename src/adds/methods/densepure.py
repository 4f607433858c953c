"""DensePure: noise once, denoise K times along the chain, take the majority vote."""

import torch
from torch import Tensor

from adds.methods.base import Pipeline, Query
from adds.methods.rs import noised
from adds.noise import Noise
from adds.reverse import Purified, denoise_unguided
from adds.schedule import Grid, Schedule


def entry(schedule: Schedule, grid: Grid, query: Query) -> tuple[Grid, int]:
    """Return the chain and the step at which the noised image enters it.

    ``grid`` enters at the grid's first timestep that is as noisy as sigma (the paper's way, as we read it);
    ``exact`` puts t* itself in front of the grid's timesteps below it (DensePure's own code).
    """
    if query.start == "grid":
        first = schedule.first_as_noisy_as(query.sigma, among=grid.timesteps)
        return grid, grid.timesteps.index(first)
    first = schedule.first_as_noisy_as(query.sigma)
    chain = schedule.respaced([t for t in grid.timesteps if t < first] + [first])
    return chain, len(chain) - 1


def densepure(pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Purified:
    """Run ``query.votes`` independent reverse chains from one noised image."""
    chain, step = entry(pipeline.denoiser.schedule, pipeline.grid, query)
    states = float(chain.alphas_bar[step]) ** 0.5 * noised(pipeline, query, samples, noise)
    return denoise_unguided(
        pipeline.denoiser,
        chain,
        states=states,
        steps=torch.full((len(states),), step, device=states.device),
        samples=samples.to(states.device),
        votes=query.votes,
        noise=noise,
        budget_share=1.0,
    )
