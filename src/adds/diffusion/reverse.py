"""Reverse diffusion: one step (the paper's Equation 3) and the unguided continuations that are voted on."""

import operator
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adds.diffusion.denoiser import Denoiser, Prediction
from adds.diffusion.noise import SHARED, Noise
from adds.diffusion.schedule import Grid


def reverse_step(*, x_t: Tensor, x0: Tensor, std: Tensor, normal: Tensor, grid: Grid, step: int) -> Tensor:
    """Take one step: x_{t-1} = coef_x0 * x0 + coef_xt * x_t + std * N(0, I), computed as precisely as x0 is given.

    The mean comes first and the noise last, and the sum is rounded once to the states' own precision. So all that is
    done to mean + noise as a whole, both roundings of the sum included, is done to a sample of N(mean, std^2).
    """
    mean = float(grid.coef_x0[step]) * x0 + float(grid.coef_xt[step]) * x_t.to(x0.dtype)
    return (mean + std.to(x0.dtype) * normal.to(x0.dtype)).to(x_t.dtype)


@dataclass(frozen=True)
class Purified:
    """Images to be classified, and to which sample and vote each belongs.

    ``owner[j]`` is the position of image j's sample in the batch; ``vote[j]`` is SHARED where one image
    stands for all votes of its sample, else the vote's number from 1. ``evaluations[j]`` counts the
    evaluations that were made for this image alone, after the point where votes part.
    """

    images: Tensor
    owner: Tensor
    vote: Tensor
    evaluations: Tensor


def one_each(images: Tensor) -> Purified:
    """Wrap one image per sample, in the samples' order."""
    owner = torch.arange(len(images), device=images.device)
    return Purified(images, owner, torch.full_like(owner, SHARED), torch.zeros_like(owner))


class ByStep:
    """Positions in a batch by the step that each is at, the highest first.

    How many there are at each is read from the device once, so that a GPU isn't waited for at every step.
    """

    def __init__(self, steps: Tensor) -> None:
        descending, self._positions = steps.sort(descending=True, stable=True)
        self._steps: list[int] = descending.tolist()

    @property
    def highest(self) -> int:
        """The highest step."""
        return self._steps[0]

    def above(self, step: int) -> Tensor:
        """Return the positions of those at higher steps."""
        return self._positions[: self._count(above=step)]

    def at(self, step: int) -> Tensor:
        """Return the positions of those at a step."""
        return self._positions[self._count(above=step) : self._count(above=step - 1)]

    def _count(self, *, above: int) -> int:
        return bisect_left(self._steps, -above, key=operator.neg)


class Continuations:
    """Independent unguided continuations of a batch of states, each of which is a vote: some now, others later.

    ``steps[i]`` is the step of the grid that state i has reached and takes next, ``samples[i]`` the number of its
    sample. All continuations of one state share its first evaluation: it is made once, whenever the first of them
    runs, and remembered. One that starts at step 0 has nothing random left, so a single image stands for all its votes.
    """

    def __init__(
        self, denoiser: Denoiser, grid: Grid, *, states: Tensor, steps: Tensor, samples: Tensor, noise: Noise
    ) -> None:
        self._denoiser, self._grid, self._noise = denoiser, grid, noise
        self._states, self._steps, self._samples = states, steps, samples
        self._parted = torch.zeros_like(steps, dtype=torch.bool)
        self._std = torch.empty_like(states)
        self.first = torch.empty_like(states)
        """Each sample's x0 where its votes part, once it has run: what one-shot denoising shows the classifier."""

    def run(self, votes: Sequence[int], owners: Tensor | None = None) -> Purified:
        """Run the votes with these numbers, of the samples at these positions (all), to the end of the chain.

        Trajectories walk in step, and those that start are evaluated with those that walk, so that batches stay full.
        """
        owners = torch.arange(len(self._states), device=self._states.device) if owners is None else owners
        steps = self._steps[owners]
        states, new = ByStep(steps), ByStep(steps.where(~self._parted[owners], -1))
        random, shared = owners[states.above(0)], owners[states.at(0)]
        owner = random.repeat_interleave(len(votes))
        vote = torch.tensor(votes, device=owner.device).repeat(len(random))
        ways, x_t = ByStep(self._steps[owner]), self._states[owner]
        evaluations = torch.ones_like(owner)  # the last, at step 0
        for step in range(states.highest, 0, -1):
            walking, starting = ways.above(step), ways.at(step)
            prediction = self._predict(x_t[walking], owners[new.at(step)], step)
            evaluations[walking] += 1
            moving, parting = torch.cat([walking, starting]), owner[starting]
            x_t[moving] = reverse_step(
                x_t=x_t[moving],
                x0=torch.cat([prediction.x0, self.first[parting]]),
                std=torch.cat([prediction.std, self._std[parting]]),
                normal=self._noise.normal(
                    tuple(x_t.shape[1:]),
                    samples=self._samples[owner[moving]],
                    votes=vote[moving],
                    timestep=self._grid.timesteps[step],
                ),
                grid=self._grid,
                step=step,
            )
        images = self._predict(x_t, owners[new.at(0)], 0).x0
        return Purified(
            images=torch.cat([images, self.first[shared]]),
            owner=torch.cat([owner, shared]),
            vote=torch.cat([vote, torch.full_like(shared, SHARED)]),
            evaluations=torch.cat([evaluations, torch.zeros_like(shared)]),
        )

    def _predict(self, x_t: Tensor, new: Tensor, step: int) -> Prediction:
        """Evaluate states on their way, together with those at ``new`` that start here and never did before."""
        prediction = self._denoiser.predict(torch.cat([x_t, self._states[new]]), self._grid, step)
        self.first[new], self._std[new] = prediction.x0[len(x_t) :], prediction.std[len(x_t) :]
        self._parted[new] = True
        return Prediction(prediction.x0[: len(x_t)], prediction.std[: len(x_t)])
