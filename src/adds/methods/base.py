"""What every method is: a map from an image and random numbers to purified images, then a vote."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from adds.classifiers import BatchedClassifier
from adds.denoiser import Denoiser
from adds.noise import SHARED, Noise
from adds.reverse import Purified
from adds.schedule import Grid


@dataclass(frozen=True)
class Pipeline:
    """The networks, and the grid of timesteps that multi-step methods visit."""

    denoiser: Denoiser
    classifier: BatchedClassifier
    grid: Grid


@dataclass(frozen=True)
class Query:
    """What is to be smoothed: an image [C, H, W] in [0, 1], at ``sigma`` in the same units.

    ``guidance_scale`` is ADDS's s. ``start`` says where DensePure enters the chain: at the first timestep of
    the grid that is noisy enough, or ``exact``-ly at t*.
    """

    image: Tensor
    sigma: float
    votes: int = 1
    guidance_scale: float = 0.8
    start: Literal["grid", "exact"] = "grid"

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
        if self.start not in ("grid", "exact"):
            raise ValueError(f"start is {self.start!r}: it must be 'grid' or 'exact'")


Method = Callable[[Pipeline, Query, Tensor, Noise], Purified]
"""Purifies the samples with the given numbers (int64 [n]) of one image, from that image's noise."""


@dataclass(frozen=True)
class Outcome:
    """What a batch of samples predicted, and what it cost.

    ``ballots`` are the classes of each sample's votes (int64 [n, votes]); ``first`` is the class of its
    one-shot denoised image ([n]), where that was asked for. Costs are split at the point where votes part:
    of K votes, any k alone would have cost the shared part and k / K of the rest.
    """

    ballots: Tensor
    first: Tensor | None
    shared: "Cost"
    votes: "Cost"
    budget_share: float


@dataclass(frozen=True)
class Cost:
    """Evaluations of the diffusion model, and seconds."""

    evaluations: int
    seconds: float


def predict(
    method: Method,
    pipeline: Pipeline,
    query: Query,
    samples: Tensor,
    noise: Noise,
    *,
    classify_first: bool = False,
) -> Outcome:
    """Purify and classify: the base classifier that is smoothed, once per sample and vote."""
    started, before = time.perf_counter(), pipeline.denoiser.evaluations
    purified = method(pipeline, query, samples, noise)
    classes = pipeline.classifier.predict(purified.images)
    ballots = torch.empty(len(samples), query.votes, dtype=torch.long, device=classes.device)
    shared = purified.vote == SHARED
    ballots[purified.owner[shared]] = classes[shared][:, None]
    ballots[purified.owner[~shared], purified.vote[~shared] - 1] = classes[~shared]
    evaluations = pipeline.denoiser.evaluations - before
    seconds = time.perf_counter() - started
    vote_share = purified.vote_evaluations / evaluations if evaluations else 0.0
    return Outcome(
        ballots=ballots,
        first=pipeline.classifier.predict(purified.first) if classify_first else None,
        shared=Cost(evaluations - purified.vote_evaluations, (1 - vote_share) * seconds),
        votes=Cost(purified.vote_evaluations, vote_share * seconds),
        budget_share=purified.budget_share,
    )
