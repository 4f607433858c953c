"""Drawing samples of a method in chunks, and counting the classes they predict."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adds.ledger import Chunk, Ledger
from adds.methods import METHODS
from adds.methods.base import Pipeline, Query, majority, predict
from adds.naming import CONTAINED, VOTING
from adds.noise import Noise, Stage
from adds.stopping import Rule

Progress = Callable[[int], None]
"""Called with the number of samples that have just been counted."""


def checksum(image: Tensor) -> str:
    """Name an image by its pixels, so that samples of one are never counted for another."""
    return hashlib.sha256(image.cpu().numpy().tobytes()).hexdigest()[:16]


def own_predictions(chunk: Chunk, method: str, votes: int) -> tuple[NDArray[np.int64], float] | None:
    """Return what a method predicts for a chunk's samples, and which part of the votes' cost is its own.

    The chunk may be another member's of the family: one with more votes, or the one whose one-shot images the
    method is. None where the chunk doesn't hold the method's predictions.
    """
    drawn = chunk.ballots.shape[1]
    if chunk.method == method and drawn >= votes:
        ballots = torch.from_numpy(chunk.ballots[:, :votes].astype(np.int64))
        return majority(ballots).numpy(), votes / drawn
    if chunk.method == CONTAINED.get(method) and len(chunk.oneshot):
        return chunk.oneshot.astype(np.int64), 0.0
    return None


@dataclass
class Tally:
    """Class counts of the samples of one image in one stage, and what they cost."""

    counts: NDArray[np.int64]
    evaluations: int = 0
    seconds: float = 0.0
    budget_share: float = 0.0
    stopped: str = ""
    """Why sampling stopped, where a rule stopped it."""

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
            method=self.method,
            image=index,
            stage=stage,
            first_sample=first,
            pixels=checksum(image),
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

    def add(self, chunk: Chunk, tally: Tally, limit: int) -> None:
        """Count this method's samples of a chunk, up to ``limit`` in all, at what they would have cost alone."""
        found = own_predictions(chunk, self.method, self.votes)
        if found is None:
            return
        skipped = tally.drawn - chunk.first_sample
        taken = min(len(chunk) - skipped, limit - tally.drawn)
        if skipped < 0 or taken <= 0:  # the sample that comes next isn't in this chunk, or isn't wanted
            return
        predictions, of_votes = found
        part = taken / len(chunk)
        tally.counts += np.bincount(predictions[skipped : skipped + taken], minlength=len(tally.counts))
        tally.evaluations += round(part * (chunk.shared_evaluations + of_votes * chunk.vote_evaluations))
        tally.seconds += part * (chunk.shared_seconds + of_votes * chunk.vote_seconds)
        tally.budget_share = max(tally.budget_share, chunk.budget_share)

    def count(
        self,
        image: Tensor,
        *,
        index: int,
        stage: Stage,
        limit: int,
        rule: Rule | None = None,
        ledger: Ledger | None = None,
        family: Sequence[Ledger] = (),
        progress: Progress | None = None,
    ) -> Tally:
        """Count the classes of ``limit`` samples, or of fewer where ``rule`` stops earlier.

        The rule is asked after every ``chunk_size`` samples. What the ``family``'s ledgers and this method's own
        hold is taken from there; the rest is drawn and added to its own. Samples that two chunks hold are the
        same, and count once.
        """
        tally = Tally(np.zeros(self.pipeline.classifier.classes, dtype=np.int64))
        known = [
            chunk
            for source in (*family, *([ledger] if ledger else []))
            for chunk in source.chunks(index, stage)
            if chunk.pixels == checksum(image)
        ]
        known.sort(key=lambda chunk: chunk.first_sample)
        while tally.drawn < limit and not tally.stopped:
            before, look = tally.drawn, min(tally.drawn + self.chunk_size, limit)
            for chunk in known:
                self.add(chunk, tally, look)
            if tally.drawn < look:
                chunk = self.draw(image, index=index, stage=stage, first=tally.drawn, count=look - tally.drawn)
                if ledger is not None:
                    ledger.append(chunk)
                self.add(chunk, tally, look)
            if rule is not None:
                tally.stopped = rule(tally.counts) or ""
            if progress is not None:
                progress(tally.drawn - before)
        return tally
