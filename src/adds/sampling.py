"""Drawing samples of a method in chunks, and counting the classes they predict."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adds.ledger import Chunk, Ledger
from adds.methods import METHODS, VOTING
from adds.methods.base import Pipeline, Query, predict
from adds.noise import Noise, Stage

Progress = Callable[[int], None]
"""Called with the number of samples that have just been counted."""


@dataclass
class Tally:
    """Class counts of the samples of one image in one stage, and what they cost."""

    counts: NDArray[np.int64]
    evaluations: int = 0
    seconds: float = 0.0
    budget_share: float = 0.0

    @property
    def drawn(self) -> int:
        """How many samples have been counted."""
        return int(self.counts.sum())

    def add(self, chunk: Chunk) -> None:
        """Count a chunk, which must begin where the last one ended."""
        if chunk.first != self.drawn:
            raise ValueError(f"sample {chunk.first} can't follow {self.drawn} counted samples")
        self.counts += np.bincount(chunk.predictions, minlength=len(self.counts))
        self.evaluations += chunk.evaluations
        self.seconds += chunk.seconds
        self.budget_share = max(self.budget_share, chunk.budget_share)


@dataclass(frozen=True)
class Sampler:
    """One method at one sigma and number of votes: draws any range of samples of any image."""

    method: str
    pipeline: Pipeline
    sigma: float
    votes: int = 1
    guidance_scale: float = 0.8
    start: str = "grid"
    seed: int = 0
    chunk_size: int = 256
    classes: int = field(init=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} doesn't exist: choose one of {', '.join(METHODS)}")
        if self.votes != 1 and self.method not in VOTING:
            raise ValueError(f"votes is {self.votes}: {self.method} has no votes to take, it must be 1")
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size is {self.chunk_size}: it must be at least 1")
        object.__setattr__(self, "classes", self.pipeline.classifier.classes)

    def draw(self, image: Tensor, *, index: int, stage: Stage, first: int, count: int) -> Chunk:
        """Predict samples ``first`` to ``first + count - 1`` of the image with this index in its data set."""
        started = time.perf_counter()
        query = Query(image, self.sigma, self.votes, self.guidance_scale, self.start)  # type: ignore[arg-type]
        device = self.pipeline.denoiser.device
        noise = Noise(seed=self.seed, stage=stage, image=index, sigma=self.sigma, device=device)
        samples = torch.arange(first, first + count, device=device)
        outcome = predict(METHODS[self.method], self.pipeline, query, samples, noise)
        return Chunk(
            image=index,
            stage=stage,
            first=first,
            predictions=outcome.predictions.cpu().numpy().astype(np.uint16),
            evaluations=outcome.evaluations,
            seconds=time.perf_counter() - started,
            budget_share=outcome.budget_share,
        )

    def count(
        self,
        image: Tensor,
        *,
        index: int,
        stage: Stage,
        n: int,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
    ) -> Tally:
        """Count the classes of ``n`` samples, taking from the ledger what it holds and adding the rest to it."""
        tally = Tally(np.zeros(self.classes, dtype=np.int64))

        def add(chunk: Chunk) -> None:
            tally.add(chunk)
            if progress is not None:
                progress(len(chunk.predictions))

        for recorded in ledger.chunks(index, stage) if ledger else []:
            if tally.drawn < n:
                add(recorded.head(n - tally.drawn))
        while tally.drawn < n:
            count = min(self.chunk_size, n - tally.drawn)
            chunk = self.draw(image, index=index, stage=stage, first=tally.drawn, count=count)
            if ledger is not None:
                ledger.append(chunk)
            add(chunk)
        return tally
