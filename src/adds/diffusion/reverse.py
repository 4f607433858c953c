"""Reverse diffusion: one step (the paper's Equation 3) and the unguided continuation with K votes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import SHARED, Noise
from adds.diffusion.schedule import Grid


def reverse_step(*, x_t: Tensor, x0: Tensor, std: Tensor, normal: Tensor, grid: Grid, step: int) -> Tensor:
    """Take one step: x_{t-1} = coef_x0 * x0 + coef_xt * x_t + std * N(0, I)."""
    return float(grid.coef_x0[step]) * x0 + float(grid.coef_xt[step]) * x_t + std * normal


@dataclass(frozen=True)
class Purified:
    """Images to be classified, and to which sample and vote each belongs.

    ``owner[j]`` is the position of image j's sample in the batch; ``vote[j]`` is SHARED where one image
    stands for all votes of its sample, else the vote's number from 1. ``first`` holds each sample's x0 as it
    was predicted where the votes part: what one-shot denoising would have shown the classifier.
    ``vote_evaluations`` counts the evaluations after that point, for all votes together. ``budget_share`` is
    the largest share of the privacy budget that any coordinate of any trajectory spent.
    """

    images: Tensor
    owner: Tensor
    vote: Tensor
    first: Tensor
    vote_evaluations: int
    budget_share: float


def one_each(images: Tensor, *, budget_share: float) -> Purified:
    """Wrap one image per sample, in the samples' order."""
    owner = torch.arange(len(images), device=images.device)
    return Purified(images, owner, torch.full_like(owner, SHARED), images, 0, budget_share)


def denoise_unguided(
    denoiser: Denoiser,
    grid: Grid,
    *,
    states: Tensor,
    steps: Tensor,
    samples: Tensor,
    votes: int,
    noise: Noise,
    budget_share: float,
) -> Purified:
    """Run ``votes`` independent unguided continuations of every state to the end of the chain.

    ``steps[i]`` is the step of the grid that state i has reached and takes next. All continuations of one
    state share its first evaluation, which is done once; one that starts at step 0 has nothing random left,
    so a single image stands for all its votes. Trajectories walk in step, so that batches stay full.
    """
    own_votes = torch.arange(1, votes + 1, device=states.device)
    x_t = states[:0]
    owner = steps.new_empty(0)
    vote = steps.new_empty(0)
    first = torch.empty_like(states)
    vote_evaluations = 0
    for step in range(int(steps.max()), 0, -1):
        starting = torch.nonzero(steps == step).flatten()
        prediction = denoiser.predict(torch.cat([x_t, states[starting]]), grid, step)
        first[starting] = prediction.x0[len(owner) :]
        vote_evaluations += len(owner)
        copies = torch.ones(len(owner) + len(starting), dtype=torch.long, device=states.device)
        copies[len(owner) :] = votes
        x_t = torch.cat([x_t, states[starting]]).repeat_interleave(copies, dim=0)
        owner = torch.cat([owner, starting]).repeat_interleave(copies)
        vote = torch.cat([vote, own_votes.repeat(len(starting))])
        normal = noise.normal(tuple(x_t.shape[1:]), samples=samples[owner], votes=vote, timestep=grid.timesteps[step])
        x_t = reverse_step(
            x_t=x_t,
            x0=prediction.x0.repeat_interleave(copies, dim=0),
            std=prediction.std.repeat_interleave(copies, dim=0),
            normal=normal,
            grid=grid,
            step=step,
        )
    starting = torch.nonzero(steps == 0).flatten()
    images = denoiser.predict(torch.cat([x_t, states[starting]]), grid, 0).x0
    first[starting] = images[len(owner) :]
    vote_evaluations += len(owner)
    return Purified(
        images=images,
        owner=torch.cat([owner, starting]),
        vote=torch.cat([vote, torch.full_like(starting, SHARED)]),
        first=first,
        vote_evaluations=vote_evaluations,
        budget_share=budget_share,
    )
