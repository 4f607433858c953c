"""Drawing samples of a method: from an image and sample numbers to the classes they predict."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adds.data.images import Picture
from adds.diffusion.checks import together
from adds.diffusion.noise import Noise
from adds.methods.base import Ballots, Query, method, vote
from adds.methods.release import Subject
from adds.models.pipeline import Pipeline
from adds.registry import METHODS, Stage, Variant
from adds.sampling.counting import Counter, Request, Tally, side_by_side
from adds.sampling.ledger import PER_MILLE, Chunk, Classes, FamilyLedgers


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

    def draw(self, requests: Sequence[Request]) -> list[Chunk]:
        """Predict the samples that are asked for, all side by side, so that the networks' batches are full.

        Each sample bears its evaluations' share of the time; where there are none, all bear the same.
        """
        denoiser = self.pipeline.denoiser
        query = Query(self.sigma, self.votes, self.guidance_scale, self.options, self.readers)
        subject = Subject.together([self._subject(request) for request in requests])
        started, before = time.perf_counter(), denoiser.evaluations
        with together():
            ballots = vote(self.method, self.pipeline, query, subject)
            rows = _Rows.of(ballots, denoiser.evaluations - before)  # a GPU has finished when they are here
        seconds = time.perf_counter() - started
        chunks, weights, end = [], rows.weights, 0
        for request in requests:
            part = slice(end, end := end + request.count)
            shared, of_votes = rows.evaluations[:, part].sum(axis=1)
            shared_seconds, vote_seconds = seconds * weights[:, part].sum(axis=1)
            chunks.append(
                Chunk(
                    method=self.method,
                    image=request.picture.number,
                    pixels=request.picture.checksum,
                    stage=request.stage,
                    first_sample=request.first,
                    ballots=rows.classes[part],
                    contained={name: found[part] for name, found in rows.contained.items()},
                    stop_timestep=rows.stop_timestep[part],
                    spent_before=rows.spent_before[part],
                    shared_evaluations=round(shared),
                    vote_evaluations=round(of_votes),
                    shared_seconds=float(shared_seconds),
                    vote_seconds=float(vote_seconds),
                    budget_share=float(rows.budget_share[part].max()),
                )
            )
        return chunks

    def _subject(self, request: Request) -> Subject:
        device, picture = self.pipeline.denoiser.device, request.picture
        noise = Noise(seed=self.seed, stage=request.stage, image=picture.number, sigma=self.sigma, device=device)
        samples = torch.arange(request.first, request.first + request.count, device=device)
        return Subject(torch.as_tensor(picture.pixels), samples, noise)

    @property
    def counter(self) -> Counter:
        """What counts this sampler's samples."""
        return Counter(Variant(self.method, self.votes), self.pipeline.classifier.classes, self.chunk_size)

    def count(
        self, picture: Picture, *, stage: Stage, limit: int, ledgers: FamilyLedgers | None = None, **how: Any
    ) -> Tally:
        """Count the classes of samples 0 to ``limit`` - 1, as `adds.sampling.counting.Counter.count` does."""
        counting = self.counter.count(picture, stage=stage, limit=limit, ledgers=ledgers, **how)
        (tally,) = side_by_side([counting], self.draw, at_once=1, ledgers=ledgers)
        return tally


@dataclass(frozen=True)
class _Rows:
    """A batch of ballots off the device, a row for each sample; ``evaluations`` are [shared and votes', samples]."""

    classes: Classes
    contained: Mapping[str, Classes]
    stop_timestep: Classes
    spent_before: Classes
    evaluations: NDArray[np.float64]
    budget_share: NDArray[np.float64]

    @classmethod
    def of(cls, ballots: Ballots, evaluations: int) -> "_Rows":
        """Copy a batch of ballots off the device; ``evaluations`` were made for all together."""
        n = len(ballots.classes)
        spent = None if ballots.spent_before is None else ballots.spent_before * PER_MILLE
        votes = _floats(ballots.vote_evaluations, 0.0, n)
        shared = _floats(ballots.shared_evaluations, (evaluations - votes.sum()) / n, n)
        return cls(
            classes=_integers(ballots.classes),
            contained={name: _integers(found) for name, found in ballots.contained.items()},
            stop_timestep=_integers(ballots.stop_timestep),
            spent_before=_integers(spent),
            evaluations=np.stack([shared, votes]),
            budget_share=_floats(ballots.budget_share, 1.0, n),
        )

    @property
    def weights(self) -> NDArray[np.float64]:
        """Which share of the batch's time each sample's evaluations took."""
        if not self.evaluations.any():
            return np.stack([np.ones(len(self.classes)), np.zeros(len(self.classes))]) / len(self.classes)
        weights: NDArray[np.float64] = self.evaluations / self.evaluations.sum()
        return weights


def _integers(found: Tensor | None) -> Classes:
    return np.empty(0, np.uint16) if found is None else found.round().cpu().numpy().astype(np.uint16)


def _floats(found: Tensor | None, otherwise: float, n: int) -> NDArray[np.float64]:
    return np.full(n, otherwise) if found is None else found.double().cpu().numpy()
