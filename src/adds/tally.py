"""Counting the classes that a method's samples predict: those on record, and those that have to be drawn.

Needs no torch: a job whose family has drawn all its samples already is done before torch would have been imported.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adds.ledger import Chunk, Classes, Ledger
from adds.naming import CONTAINED, Stage
from adds.stopping import Rule

Progress = Callable[[int], None]
"""Called with the number of samples that have just been counted."""


class Draw(Protocol):
    """Predicts samples ``first`` to ``first + count - 1`` of the image with this index in its data set."""

    def __call__(self, image: Any, *, index: int, stage: Stage, first: int, count: int) -> Chunk:
        """Draw them."""


def checksum(image: Any) -> str:
    """Name an image by its pixels, so that samples of one are never counted for another."""
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()[:16]


def majority(ballots: Classes) -> Classes:
    """Return the class with most of the K votes of each sample ([n, K] to [n]).

    A tie goes to the class that was voted for first: any fixed rule is sound, this is ours.
    """
    support = (ballots[:, :, None] == ballots[:, None, :]).sum(axis=2)
    first_winner = support.argmax(axis=1)
    winners: Classes = ballots[np.arange(len(ballots)), first_winner]
    return winners


def own_predictions(chunk: Chunk, method: str, votes: int) -> tuple[Classes, float] | None:
    """Return what a method predicts for a chunk's samples, and which part of the votes' cost is its own.

    The chunk may be another member's of the family: one with more votes, or the one whose one-shot images the
    method is. None where the chunk doesn't hold the method's predictions.
    """
    drawn = chunk.ballots.shape[1]
    if chunk.method == method and drawn >= votes:
        return majority(chunk.ballots[:, :votes]), votes / drawn
    if chunk.method == CONTAINED.get(method) and len(chunk.oneshot):
        return chunk.oneshot, 0.0
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
class Counter:
    """Counts the samples of one method, sigma and number of votes; ``draw`` makes those that aren't on record."""

    method: str
    sigma: float
    votes: int
    seed: int
    classes: int
    chunk_size: int
    draw: Draw

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
        image: Any,
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
        tally = Tally(np.zeros(self.classes, dtype=np.int64))
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
