"""Counting the classes of samples: what is on record is read, the rest is asked for, and drawn for many images at once.

Counting an image is a generator. It yields a `Request` where samples are missing and goes on with the `Chunk` that was
drawn, so that `side_by_side` can gather the requests of several images: looks at the counts are frequent and small, the
networks' batches are full all the same. Needs no torch.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from adds.data.images import Picture
from adds.registry import Stage, Variant
from adds.sampling.first import FirstSamples
from adds.sampling.ledger import Chunk, FamilyLedgers
from adds.sampling.stopping import Rule
from adds.sampling.votes import predictions_of

Progress = Callable[[int], None]
"""Called with the number of samples that have just been counted."""


@dataclass(frozen=True)
class Request:
    """Samples ``first`` to ``first + count - 1`` of an image in a stage."""

    picture: Picture
    stage: Stage
    first: int
    count: int


class Draw(Protocol):
    """Predicts samples."""

    def __call__(self, requests: Sequence[Request], /) -> list[Chunk]:
        """Draw them, a chunk for each request."""


def refuse_to_draw(requests: Sequence[Request], /) -> list[Chunk]:
    """Stand in for `Draw` in a job that only reads its family's samples."""
    missing = requests[0]
    raise LookupError(
        f"{missing.stage} samples {missing.first} to {missing.first + missing.count - 1} of image "
        f"{missing.picture.number} are not on record, although this job's leader has finished: its ledger was removed "
        "or changed. Add --forcerun certify to the command that you ran: leaders draw what is missing."
    )


@dataclass
class Tally:
    """Class counts of the samples of one image in one stage, and what they cost."""

    counts: NDArray[np.int64]
    evaluations: int = 0
    seconds: float = 0.0
    budget_share: float = 0.0
    stopped: str = ""
    """Why sampling stopped, where a rule stopped it."""
    first: FirstSamples | None = None
    """What the first samples tell, as many of every image."""

    @property
    def samples(self) -> int:
        """How many samples have been counted."""
        return int(self.counts.sum())

    def add(self, chunk: Chunk, variant: Variant, limit: int) -> None:
        """Count a variant's samples of a chunk, up to ``limit`` in all, at what they would have cost alone."""
        skipped = self.samples - chunk.first_sample
        taken = min(len(chunk) - skipped, limit - self.samples)
        if skipped < 0 or taken <= 0:  # the sample that comes next isn't in this chunk, or isn't wanted
            return
        found = predictions_of(variant, chunk)
        if found is None:
            return
        predictions, of_votes = found
        part = taken / len(chunk)
        if self.first is not None:
            self.first.add(chunk, variant, predictions, skipped, skipped + taken)
        self.counts += np.bincount(predictions[skipped : skipped + taken], minlength=len(self.counts))
        self.evaluations += round(part * (chunk.shared_evaluations + of_votes * chunk.vote_evaluations))
        self.seconds += part * (chunk.shared_seconds + of_votes * chunk.vote_seconds)
        self.budget_share = max(self.budget_share, chunk.budget_share)


@dataclass(frozen=True)
class Counter:
    """Counts the samples of one variant; asks for at most ``chunk_size`` at once."""

    variant: Variant
    classes: int
    chunk_size: int

    def count(
        self,
        picture: Picture,
        *,
        stage: Stage,
        limit: int,
        rule: Rule | None = None,
        look_every: int | None = None,
        first: int = 0,
        ledgers: FamilyLedgers | None = None,
        progress: Progress | None = None,
    ) -> Generator[Request, Chunk, Tally]:
        """Count the classes of ``limit`` samples, or of fewer where ``rule`` stops earlier.

        The rule is asked after every ``look_every`` samples, or after every chunk. What the family's ledgers hold is
        taken from there; the rest is asked for. Samples that two chunks hold are the same, and count once. The
        ``first`` so many are looked at more closely (`FirstSamples`).
        """
        tally, step = Tally(np.zeros(self.classes, dtype=np.int64)), look_every or self.chunk_size
        tally.first = FirstSamples.none_yet(self.classes, first) if first else None
        while tally.samples < limit and not tally.stopped:
            before, look = tally.samples, min(tally.samples + step, limit)
            self._find(tally, picture, stage, look, ledgers)
            if tally.samples < look:
                chunk = yield Request(picture, stage, first=tally.samples, count=look - tally.samples)
                tally.add(chunk, self.variant, look)
            if rule is not None:
                tally.stopped = rule(tally.counts) or ""
            if progress is not None:
                progress(tally.samples - before)
        return tally

    def _find(self, tally: Tally, picture: Picture, stage: Stage, look: int, ledgers: FamilyLedgers | None) -> None:
        """Count what is on record, searching further only while samples are missing."""
        while ledgers is not None:
            for chunk in ledgers.chunks(picture, stage):
                tally.add(chunk, self.variant, look)
            if tally.samples >= look or not ledgers.search():
                return


Result = TypeVar("Result")
Counting = Generator[Request, Chunk, Result]


def side_by_side(
    countings: Iterable[Counting[Result]], draw: Draw, *, at_once: int, ledgers: FamilyLedgers | None = None
) -> Iterator[Result]:
    """Run countings, and yield their results in the order in which they finish.

    As many run at a time as it takes for their requests to make ``at_once`` samples, or one. All that they wait for is
    drawn together and written to the job's ledger, on disk before any of it is counted.
    """
    starting, waiting = iter(countings), list[tuple[Counting[Result], Request]]()
    while True:
        while sum(request.count for _, request in waiting) < at_once and (counting := next(starting, None)):
            yield from _advance(counting, None, waiting)
        if not waiting:
            return
        chunks = draw([request for _, request in waiting])
        if ledgers is not None:
            ledgers.append(chunks)
        resumed, waiting = waiting, []
        for (counting, _), chunk in zip(resumed, chunks, strict=True):
            yield from _advance(counting, chunk, waiting)


def _advance(
    counting: Counting[Result], chunk: Chunk | None, waiting: list[tuple[Counting[Result], Request]]
) -> Iterator[Result]:
    """Start a counting, or go on with the chunk that it waited for: to its next request, or to its result."""
    try:
        request = next(counting) if chunk is None else counting.send(chunk)
    except StopIteration as finished:
        yield finished.value
    else:
        waiting.append((counting, request))
