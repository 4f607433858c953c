"""One certification job: the class counts of some images for one method, sigma and number of votes.

Needs no torch: a job whose family has drawn all its samples already is done before torch would have been imported.
"""

import contextlib
import logging
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from adds.data.images import Images, Picture
from adds.experiment import short_hash
from adds.machine.devices import Device
from adds.machine.logs import Stopped, watched
from adds.registry import OPTIONS, Stage, Variant
from adds.sampling.first import FirstSamples
from adds.sampling.ledger import Chunk, FamilyLedgers
from adds.sampling.stopping import Rule, SampleSize
from adds.sampling.votes import predictions_of

logger = logging.getLogger(__name__)

SETTING = ["method", "sigma", "votes"]
KEY = [*SETTING, "number"]
"""The columns that tell rows of counts, and of everything made from them, apart."""

LEDGER_IS = "samples are recorded in"
"""What a job logs before the path of its ledger, for `adds.monitor.status`."""

RAISED_CAP = "raised cap"
"""Why sampling stopped where the most samples were not fixed beforehand: the cap's own test is then not allowed."""

Progress = Callable[[int], None]
"""Called with the number of samples that have just been counted."""

PER_IMAGE = re.compile(r"\((\d+) of \d+\): .* of (\d+) samples after (\d+) that chose the class,")
"""What a job logs of a finished image (`_tell`): its place, and its samples of both stages."""


class Draw(Protocol):
    """Predicts samples ``first`` to ``first + count - 1`` of an image in a stage."""

    def __call__(self, picture: Picture, *, stage: Stage, first: int, count: int) -> Chunk:
        """Draw them."""


def refuse_to_draw(picture: Picture, *, stage: Stage, first: int, count: int) -> Chunk:
    """Stand in for `Draw` in a job that only reads its family's samples."""
    raise LookupError(
        f"{stage} samples {first} to {first + count - 1} of image {picture.number} are not on record, although this "
        "job's leader has finished: its ledger was removed or changed. Add --forcerun certify to the command that you "
        "ran: leaders draw what is missing."
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
    """Counts the samples of one variant; ``draw`` makes those that no ledger holds.

    At most ``chunk_size`` samples are drawn, and written to disk, at once.
    """

    variant: Variant
    classes: int
    chunk_size: int
    draw: Draw

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
    ) -> Tally:
        """Count the classes of ``limit`` samples, or of fewer where ``rule`` stops earlier.

        The rule is asked after every ``look_every`` samples, or after every chunk. What the family's ledgers hold is
        taken from there; the rest is drawn and added to them. Samples that two chunks hold are the same, and count
        once. The ``first`` so many are looked at more closely (`FirstSamples`).
        """
        tally, step = Tally(np.zeros(self.classes, dtype=np.int64)), look_every or self.chunk_size
        tally.first = FirstSamples.none_yet(self.classes, first) if first else None
        while tally.samples < limit and not tally.stopped:
            before, look = tally.samples, min(tally.samples + step, limit)
            self._find(tally, picture, stage, look, ledgers)
            if tally.samples < look:
                chunk = self.draw(picture, stage=stage, first=tally.samples, count=look - tally.samples)
                if ledgers is not None:
                    ledgers.append(chunk)
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
            if tally.samples >= look or not ledgers.search(to_write=self.draw is not refuse_to_draw):
                return


def whole_identity(identity: Mapping[str, Any], models: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return all that determines a ballot: the configuration's part, the networks' checksums, the kind of device.

    Half precision is used on GPUs only, so samples of two kinds of device are kept apart. ``hash`` names the rest.
    """
    whole = {**identity, "models": dict(models), "device": device}
    return {**whole, "hash": short_hash(whole)}


def configured(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration's part of a whole identity."""
    return {key: value for key, value in identity.items() if key not in ("models", "device", "hash")}


def versions() -> str:
    """Say with what the counts were made."""
    packages = " ".join(f"{name} {version(name)}" for name in ("adds", "torch", "guided-diffusion-sdk"))
    return f"python {platform.python_version()} {packages}"


def provenance(identity: Mapping[str, Any], device: Device) -> dict[str, Any]:
    """Return the columns that say of a row of counts what made it."""
    return {
        "seed": identity["seed"],
        "guidance_scale": identity.get("guidance_scale", np.nan),
        **{option: identity.get(option, "") for option in OPTIONS},
        "identity": identity["hash"],
        "device_kind": device.kind,
        "device": device.name,
        "versions": versions(),
    }


def select(counter: Counter, picture: Picture, size: SampleSize, **sources: Any) -> Tally:
    """Count the selection samples: none where the class in question is the label."""
    return counter.count(
        picture,
        stage="selection",
        limit=0 if size.asks_label else size.n0,
        rule=size.selection_rule(),
        look_every=size.selection_look(counter.chunk_size),
        **sources,
    )


def label_of(picture: Picture) -> int:
    """Return an image's label, for a run that asks about labels."""
    if picture.label is None:
        raise ValueError(
            f"image {picture.number} has no label, and sampling.stop.questions ask about labels: ask about bounds"
        )
    return picture.label


def run_job(
    counter: Counter,
    images: Images,
    *,
    size: SampleSize,
    ledgers: FamilyLedgers,
    identity: Mapping[str, Any],
    device: Device,
) -> pd.DataFrame:
    """Count the samples of every image and return a row for each; ``device`` is for the record."""
    rows = []
    logger.info("%s %s", LEDGER_IS, ledgers.path)
    done = HowFar(total=len(images) * (size.n0 + size.n), at_most=size.stop is not None)
    if counter.draw is not refuse_to_draw:
        _tell_where_it_goes_on(ledgers, images, size, done)
    sigma, (method, votes) = identity["sigma"], counter.variant
    with _telling(done, f"{method} sigma={sigma:g} votes={votes}") as progress:
        for position, picture in enumerate(images, start=1):
            sources: dict[str, Any] = {"ledgers": ledgers, "progress": progress}
            selection = select(counter, picture, size, **sources)
            about = label_of(picture) if size.asks_label else int(selection.counts.argmax())
            cap = "cap" if not size.asks_label or ledgers.fix_cap(picture, size.n) else RAISED_CAP
            estimation = counter.count(
                picture,
                stage="estimation",
                limit=size.n,
                rule=size.estimation_rule(about, sigma),
                first=size.in_any_case(counter.chunk_size),
                **sources,
            )
            done.total -= size.n0 + size.n - selection.samples - estimation.samples
            rows.append(
                {
                    "method": method,
                    "sigma": sigma,
                    "votes": votes,
                    "number": picture.number,
                    "label": picture.label,
                    "counts_selection": selection.counts.tolist(),
                    "counts_estimation": estimation.counts.tolist(),
                    "n0": selection.samples,
                    "n": estimation.samples,
                    "stopped": cap if estimation.stopped == "cap" else estimation.stopped,
                    "evaluations": selection.evaluations + estimation.evaluations,
                    "seconds": selection.seconds + estimation.seconds,
                    "budget_share": max(selection.budget_share, estimation.budget_share),
                    **(estimation.first.columns() if estimation.first else {}),
                    "pixels": picture.checksum,
                    **provenance(identity, device),
                }
            )
            _tell(picture, selection, estimation, f"{position} of {len(images)}", rows[-1]["seconds"])
    return pd.DataFrame(rows).astype({"label": "Int64"})


@dataclass
class HowFar:
    """How many samples a job has counted, of how many in all (at most, where sampling may stop earlier)."""

    total: int
    at_most: bool
    samples: int = 0

    def __str__(self) -> str:
        return of_samples(self.samples, self.total, at_most=self.at_most)


def of_samples(samples: int, total: int, *, at_most: bool) -> str:
    """Say how far sampling is, for people."""
    return f"{samples:,} of {'at most ' if at_most else ''}{total:,} samples"


def _tell_where_it_goes_on(ledgers: FamilyLedgers, images: Images, size: SampleSize, done: HowFar) -> None:
    """Log what an earlier run has drawn already."""
    found = ledgers.on_record(images, {"selection": 0 if size.asks_label else size.n0, "estimation": size.n})
    if found:
        logger.info("going on from %s on record", of_samples(found, done.total, at_most=done.at_most))


@contextlib.contextmanager
def _telling(done: HowFar, name: str) -> Iterator[Progress]:
    """Count samples, on a bar that nobody else shows; say how far it was where the job is stopped."""
    interval = 1 if sys.stderr.isatty() else 30
    with tqdm(total=done.total, desc=name, unit="sample", mininterval=interval, disable=watched()) as bar:

        def progress(samples: int) -> None:
            done.samples += samples
            bar.total = done.total
            bar.update(samples)

        try:
            yield progress
        except Stopped as stopped:
            stopped.how_far = f" after {done}; the same command goes on from there"
            raise


def _tell(picture: Picture, selection: Tally, estimation: Tally, place: str, seconds: float) -> None:
    """Log how an image went, as `PER_IMAGE` reads it."""
    shown = int(estimation.counts.argmax()) if picture.label is None else picture.label
    logger.debug(
        "image %d (%s): %s %s has %.1f%% of %d samples after %d that chose the class, %.1f s",
        picture.number,
        place,
        "class" if picture.label is None else "true class",
        picture.class_name or shown,
        100 * estimation.counts[shown] / estimation.samples,
        estimation.samples,
        selection.samples,
        seconds,
    )
