"""What every method is: a map from an image and random numbers to ballots, and what that costs."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor

from adds.diffusion.noise import SHARED, Noise
from adds.diffusion.reverse import Purified
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.majority import UNCAST, always_cast, undecided
from adds.models.pipeline import Pipeline
from adds.registry import METHODS


@dataclass(frozen=True)
class Query:
    """What is to be smoothed: an image [C, H, W] in [0, 1], at ``sigma`` in the same units.

    ``guidance_scale`` is ADDS's s. ``options`` are a method's own, as its record in `adds.registry` lists them.
    """

    image: Tensor
    sigma: float
    votes: int = 1
    guidance_scale: float = 0.8
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.image.ndim != 3:
            raise ValueError(f"image has shape {tuple(self.image.shape)}: it must be [channels, height, width]")
        if not bool(torch.isfinite(self.image).all()):
            raise ValueError("image has NaN or infinite pixels")
        low, high = float(self.image.min()), float(self.image.max())
        if low < 0 or high > 1:
            raise ValueError(f"image has values from {low} to {high}: they must be in [0, 1]")
        if not (self.sigma > 0 and math.isfinite(self.sigma)):
            raise ValueError(f"sigma is {self.sigma}: it must be positive and finite")
        if self.votes < 1:
            raise ValueError(f"votes is {self.votes}: it must be at least 1")
        if not 0 <= self.guidance_scale <= 1:
            raise ValueError(f"guidance_scale is {self.guidance_scale}: it must be in [0, 1]")

    @property
    def all_votes(self) -> range:
        """The votes' numbers."""
        return range(1, self.votes + 1)

    def option(self, method: str, name: str) -> str:
        """Return the value of a method's option, or its default."""
        allowed = METHODS[method].options[name]
        value = self.options.get(name, allowed[0])
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}: {method} takes {' or '.join(allowed)}")
        return value


@dataclass(frozen=True)
class Ballots:
    """What a batch of samples voted for.

    ``classes`` are the classes of each sample's votes (int64 [n, votes]), in the votes' order, and UNCAST where a vote
    wasn't cast; ``contained`` those of methods whose samples these ones hold ([n] each, by name). Of all evaluations
    ``vote_evaluations`` were made after the point where votes part, for all ballots that were cast. ``budget_share`` is
    the largest share of the privacy budget that any coordinate of any trajectory spent. For guided methods,
    ``stop_timestep`` ([n]) is the timestep of the state at which a trajectory's budget was spent, and ``spent_before``
    ([n]) the share of coordinates that had spent theirs before the last guided step.
    """

    classes: Tensor
    budget_share: float
    vote_evaluations: int = 0
    contained: Mapping[str, Tensor] = field(default_factory=dict)
    stop_timestep: Tensor | None = None
    spent_before: Tensor | None = None


@dataclass(frozen=True)
class Work:
    """Evaluations per sample, of the diffusion model and of the classifier: at most, because not all votes are cast."""

    diffusion: float
    classifier: float


class Method(Protocol):
    """What a method's module provides; those that show the classifier an image also have ``purify``."""

    def vote(self, pipeline: Pipeline, query: Query, samples: Tensor, noise: Noise) -> Ballots:
        """Cast the votes of the samples with the given numbers (int64 [n]) of one image, from that image's noise."""

    def work(self, schedule: Schedule, grid: Grid, query: Query) -> Work:
        """Return what one sample costs at most."""


def method(name: str) -> Method:
    """Return a method's module."""
    if name not in METHODS:
        raise ValueError(f"method {name!r} doesn't exist: choose one of {', '.join(METHODS)}")
    return cast("Method", importlib.import_module(f"adds.methods.{name}"))


Run = Callable[[Sequence[int], Tensor], Purified]
"""Denoises the votes with given numbers of the samples at given positions of a batch (int64 [m])."""


def classify(pipeline: Pipeline, images: Tensor, *, budget_share: float) -> Ballots:
    """Let the classifier cast the one ballot of every sample, on an image for each."""
    return Ballots(pipeline.classifier.predict(images)[:, None], budget_share)


def poll(pipeline: Pipeline, query: Query, samples: Tensor, run: Run, *, budget_share: float) -> Ballots:
    """Let the classifier vote on the images that ``run`` denoises, as long as a vote can change a sample's outcome.

    Ballots that no sample can be decided without are cast at once. Then, round by round, every sample that is still
    undecided casts one more: all of the batch together, so that the networks' batches stay full. A vote's noise is its
    own, so its ballot doesn't depend on which others are cast, and predictions are those of all K votes.
    """
    device = pipeline.denoiser.device
    classes = torch.full((len(samples), query.votes), UNCAST, device=device)
    owners = torch.arange(len(samples), device=device)
    done = vote_evaluations = 0
    for wanted in range(always_cast(query.votes), query.votes + 1):
        purified = run(query.all_votes[done:wanted], owners)
        found = pipeline.classifier.predict(purified.images)
        shared = purified.vote == SHARED
        classes[purified.owner[shared], done:wanted] = found[shared][:, None]
        classes[purified.owner[~shared], purified.vote[~shared] - 1] = found[~shared]
        vote_evaluations += purified.vote_evaluations
        open_ = undecided(classes[owners, :wanted].cpu().numpy(), query.votes)
        owners, done = owners[torch.from_numpy(open_).to(device)], wanted
        if len(owners) == 0:
            break
    return Ballots(classes, budget_share, vote_evaluations)
