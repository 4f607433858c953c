"""What every method is: a map from an image and random numbers to ballots, and what that costs."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from adds.diffusion.noise import SHARED
from adds.diffusion.reverse import Purified
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.majority import UNCAST, always_cast, undecided
from adds.methods.release import Release, Subject, release
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.registry import METHODS


@dataclass(frozen=True)
class Query:
    """How an image is smoothed: at ``sigma``, in units of pixels in [0, 1].

    ``guidance_scale`` is ADDS's s. ``options`` are a method's own, as its record in `adds.registry` lists them;
    ``readers`` are the methods that `consensus` asks, each with its weight.
    """

    sigma: float
    votes: int = 1
    guidance_scale: float = 0.8
    options: Mapping[str, str] = field(default_factory=dict)
    readers: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
    """What a batch of samples voted for, a row for each.

    ``classes`` are the classes of each sample's votes (int64 [n, votes]), in the votes' order, and UNCAST where a vote
    wasn't cast; ``contained`` those of methods whose samples these ones hold ([n] each, by name). Of a sample's
    evaluations ``vote_evaluations`` were made after the point where votes part, for all ballots that were cast, and
    ``shared_evaluations`` before it, where samples differ in that. For guided methods, ``budget_share`` is the largest
    share of the privacy budget that a coordinate of the trajectory spent (others release y at the price of all of it),
    ``stop_timestep`` the timestep of the state at which it was spent, and ``spent_before`` the share of coordinates
    that had spent theirs before the last guided step.
    """

    classes: Tensor
    shared_evaluations: Tensor | None = None
    vote_evaluations: Tensor | None = None
    contained: Mapping[str, Tensor] = field(default_factory=dict)
    budget_share: Tensor | None = None
    stop_timestep: Tensor | None = None
    spent_before: Tensor | None = None


@dataclass(frozen=True)
class Work:
    """Evaluations per sample, of the diffusion model and of the classifier: at most, because not all votes are cast."""

    diffusion: float
    classifier: float


Seen = TypeVar("Seen", Release, Subject, contravariant=True)
"""What a method gets of an image: the release, but for the paper's ADDS, which looks at the image itself."""


class Method(Protocol[Seen]):
    """What a method's module provides; those that show the classifier an image also have ``purify``."""

    def vote(self, pipeline: Pipeline, query: Query, seen: Seen, /) -> Ballots:
        """Cast the votes of some samples."""

    def work(self, schedule: Schedule, grid: Grid, query: Query, /) -> Work:
        """Return what one sample costs at most."""


def method(name: str) -> Any:
    """Return a method's module: a `Method`."""
    if name not in METHODS:
        raise ValueError(f"method {name!r} doesn't exist: choose one of {', '.join(METHODS)}")
    return importlib.import_module(f"adds.methods.{name}")


def seen_by(name: str, pipeline: Pipeline, query: Query, subject: Subject) -> Release | Subject:
    """Return what a method gets: the image only where its record says that it guards it by a privacy filter."""
    if METHODS[name].sees_image:
        return subject
    return release(pipeline.denoiser.schedule, subject, query.sigma)


def vote(name: str, pipeline: Pipeline, query: Query, subject: Subject) -> Ballots:
    """Let a method cast the votes of some samples."""
    ballots: Ballots = method(name).vote(pipeline, query, seen_by(name, pipeline, query, subject))
    return ballots


def purify(name: str, pipeline: Pipeline, query: Query, subject: Subject) -> Purified | None:
    """Return the images that a method shows its classifier, or None where there are none."""
    show = getattr(method(name), "purify", None)
    return show(pipeline, query, seen_by(name, pipeline, query, subject)) if show else None


Run = Callable[[Sequence[int], Tensor], Purified]
"""Denoises the votes with given numbers of the samples at given positions of a batch (int64 [m])."""


def classify(classifier: BatchedClassifier, images: Tensor) -> Ballots:
    """Let a classifier cast the one ballot of every sample, on an image for each."""
    return Ballots(classifier.predict(images)[:, None])


def poll(pipeline: Pipeline, query: Query, samples: int, run: Run) -> Ballots:
    """Let the classifier vote on the images that ``run`` denoises, as long as a vote can change a sample's outcome.

    Ballots that no sample can be decided without are cast at once. Then, round by round, every sample that is still
    undecided casts one more: all of the batch together, so that the networks' batches stay full. A vote's noise is its
    own, so its ballot doesn't depend on which others are cast, and predictions are those of all K votes.
    """
    device = pipeline.denoiser.device
    classes = torch.full((samples, query.votes), UNCAST, device=device)
    owners = torch.arange(samples, device=device)
    vote_evaluations, done = torch.zeros_like(owners), 0
    for wanted in range(always_cast(query.votes), query.votes + 1):
        purified = run(query.all_votes[done:wanted], owners)
        found = pipeline.classifier.predict(purified.images)
        for vote in query.all_votes[done:wanted]:  # without a mask, whose size a GPU would have to tell first
            cast = (purified.vote == vote) | (purified.vote == SHARED)
            classes[:, vote - 1].scatter_reduce_(0, purified.owner, torch.where(cast, found, UNCAST), "amin")
        vote_evaluations.index_add_(0, purified.owner, purified.evaluations)
        (open_,) = undecided(classes[owners, :wanted].cpu().numpy(), query.votes).nonzero()
        owners, done = owners[torch.from_numpy(open_).to(device)], wanted
        if len(owners) == 0:
            break
    return Ballots(classes, vote_evaluations=vote_evaluations)
