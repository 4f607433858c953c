"""Drawing samples of a method in chunks, and counting the classes they predict."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adds.ledger import Chunk, Ledger
from adds.methods import CONTAINED, METHODS, VOTING
from adds.methods.base import Pipeline, Query, majority, predict
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


@dataclass(frozen=True)
class Sampler:
    """One method at one sigma and number of votes: draws any range of samples of any image.

    ``keep_oneshot`` makes ADDS classify its one-shot denoised images too, for `adds_oneshot` to use.
    """

    method: str
    pipeline: Pipeline
    sigma: float
    votes: int = 1
    guidance_scale: float = 0.8
    start: Literal["grid", "exact"] = "grid"
    seed: int = 0
    chunk_size: int = 256
    keep_oneshot: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} doesn't exist: choose one of {', '.join(METHODS)}")
        if self.votes != 1 and self.method not in VOTING:
            raise ValueError(f"votes is {self.votes}: {self.method} has no votes to take, it must be 1")
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size is {self.chunk_size}: it must be at least 1")

    def draw(self, image: Tensor, *, index: int, stage: Stage, first: int, count: int) -> Chunk:
        """Predict samples ``first`` to ``first + count - 1`` of the image with this index in its data set."""
        query = Query(image, self.sigma, self.votes, self.guidance_scale, self.start)
        device = self.pipeline.denoiser.device
        noise = Noise(seed=self.seed, stage=stage, image=index, sigma=self.sigma, device=device)
        samples = torch.arange(first, first + count, device=device)
        outcome = predict(
            METHODS[self.method],
            self.pipeline,
            query,
            samples,
            noise,
            classify_first=self.keep_oneshot,
        )
        return Chunk(
            image=index,
            stage=stage,
            first_sample=first,
            ballots=outcome.ballots.cpu().numpy().astype(np.uint16),
            oneshot=np.empty(0, np.uint16)
            if outcome.first is None
            else outcome.first.cpu().numpy().astype(np.uint16),
            shared_evaluations=outcome.shared.evaluations,
            vote_evaluations=outcome.votes.evaluations,
            shared_seconds=outcome.shared.seconds,
            vote_seconds=outcome.votes.seconds,
            budget_share=outcome.budget_share,
        )

    def add(self, chunk: Chunk, tally: Tally, limit: int) -> int:
        """Count this method's samples of a chunk, up to ``limit`` in all; return how many they were.

        The chunk may be another member's of the family: with more votes, or with the one-shot images that
        this method is. Its samples then count at what they would have cost alone.
        """
        skipped = tally.drawn - chunk.first_sample
        taken = min(len(chunk) - skipped, limit - tally.drawn)
        if skipped < 0 or taken <= 0:  # the sample that comes next isn't in this chunk, or isn't wanted
            return 0
        votes = chunk.ballots.shape[1]
        if self.method in CONTAINED and len(chunk.oneshot):
            predictions, of_votes = chunk.oneshot.astype(np.int64), 0.0
        else:
            ballots = torch.from_numpy(chunk.ballots[:, : self.votes].astype(np.int64))
            predictions, of_votes = majority(ballots).numpy(), self.votes / votes
        part = taken / len(chunk)
        tally.counts += np.bincount(predictions[skipped : skipped + taken], minlength=len(tally.counts))
        tally.evaluations += round(part * (chunk.shared_evaluations + of_votes * chunk.vote_evaluations))
        tally.seconds += part * (chunk.shared_seconds + of_votes * chunk.vote_seconds)
        tally.budget_share = max(tally.budget_share, chunk.budget_share)
        return taken

    def count(
        self,
        image: Tensor,
        *,
        index: int,
        stage: Stage,
        n: int,
        ledger: Ledger | None = None,
        family: Ledger | None = None,
        progress: Progress | None = None,
    ) -> Tally:
        """Count the classes of ``n`` samples.

        What the ``family``'s ledger and this method's own hold is taken from there; the rest is drawn and
        added to its own. Samples that two chunks hold are the same, and count once.
        """
        tally = Tally(np.zeros(self.pipeline.classifier.classes, dtype=np.int64))
        known = [chunk for source in (family, ledger) if source for chunk in source.chunks(index, stage)]
        for chunk in sorted(known, key=lambda chunk: chunk.first_sample):
            taken = self.add(chunk, tally, n)
            if progress is not None and taken:
                progress(taken)
        while tally.drawn < n:
            count = min(self.chunk_size, n - tally.drawn)
            chunk = self.draw(image, index=index, stage=stage, first=tally.drawn, count=count)
            if ledger is not None:
                ledger.append(chunk)
            taken = self.add(chunk, tally, n)
            if progress is not None:
                progress(taken)
        return tally
