"""Drawing samples of a method: from an image and sample numbers to the classes they predict."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adds.data.images import Picture
from adds.diffusion.noise import Noise
from adds.methods.base import Query, method, vote
from adds.methods.release import Subject
from adds.models.pipeline import Pipeline
from adds.registry import METHODS, Stage, Variant
from adds.sampling.job import Counter, Tally
from adds.sampling.ledger import PER_MILLE, Chunk, Classes


@dataclass(frozen=True)
class Sampler:
    """One method at one sigma and number of votes: draws any range of samples of any image."""

    method: str
    pipeline: Pipeline
    sigma: float
    votes: int = 1
    guidance_scale: float = 0.8
    seed: int = 0
    chunk_size: int = 256
    options: Mapping[str, str] = field(default_factory=dict)
    readers: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        method(self.method)
        if self.votes != 1 and not METHODS[self.method].takes_votes:
            raise ValueError(f"votes is {self.votes}: {self.method} has no votes to take, it must be 1")
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size is {self.chunk_size}: it must be at least 1")

    def draw(self, picture: Picture, *, stage: Stage, first: int, count: int) -> Chunk:
        """Predict samples ``first`` to ``first + count - 1`` of an image."""
        denoiser = self.pipeline.denoiser
        image = torch.as_tensor(picture.pixels)
        query = Query(self.sigma, self.votes, self.guidance_scale, self.options, self.readers)
        noise = Noise(seed=self.seed, stage=stage, image=picture.number, sigma=self.sigma, device=denoiser.device)
        samples = torch.arange(first, first + count, device=denoiser.device)
        started, before = time.perf_counter(), denoiser.evaluations
        ballots = vote(self.method, self.pipeline, query, Subject(image, samples, noise))
        classes = _integers(ballots.classes)  # a GPU has finished when they are here
        seconds, evaluations = time.perf_counter() - started, denoiser.evaluations - before
        of_votes = ballots.vote_evaluations / evaluations if evaluations else 0.0
        return Chunk(
            method=self.method,
            image=picture.number,
            pixels=picture.checksum,
            stage=stage,
            first_sample=first,
            ballots=classes,
            contained={name: _integers(found) for name, found in ballots.contained.items()},
            stop_timestep=_integers(ballots.stop_timestep),
            spent_before=_integers(None if ballots.spent_before is None else ballots.spent_before * PER_MILLE),
            shared_evaluations=evaluations - ballots.vote_evaluations,
            vote_evaluations=ballots.vote_evaluations,
            shared_seconds=(1 - of_votes) * seconds,
            vote_seconds=of_votes * seconds,
            budget_share=ballots.budget_share,
        )

    @property
    def counter(self) -> Counter:
        """What counts this sampler's samples."""
        return Counter(Variant(self.method, self.votes), self.pipeline.classifier.classes, self.chunk_size, self.draw)

    def count(self, picture: Picture, *, stage: Stage, limit: int, **sources: Any) -> Tally:
        """Count the classes of samples 0 to ``limit`` - 1, as `adds.sampling.job.Counter.count` does."""
        return self.counter.count(picture, stage=stage, limit=limit, **sources)


def _integers(found: Tensor | None) -> Classes:
    return np.empty(0, np.uint16) if found is None else found.round().cpu().numpy().astype(np.uint16)
