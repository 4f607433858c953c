"""One certification job: the class counts of some images for one method, sigma and number of votes.

Needs no torch: a job whose family has drawn all its samples already is done before torch would have been imported.
"""

import contextlib
import logging
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd

from adds import __version__
from adds.data.images import Images, Picture
from adds.experiment import short_hash
from adds.machine.devices import Device
from adds.machine.logs import Stopped, progress_bar
from adds.registry import OPTIONS, ROUNDING
from adds.sampling.counting import Counter, Counting, Draw, Progress, Tally, side_by_side
from adds.sampling.ledger import FamilyLedgers
from adds.sampling.stopping import SampleSize

logger = logging.getLogger(__name__)

SETTING = ["method", "sigma", "votes"]
KEY = [*SETTING, "number"]
"""The columns that tell rows of counts, and of everything made from them, apart."""

LEDGER_IS = "samples are recorded in"
"""What a job logs before the path of its ledger, for `adds.monitor.status`."""

RAISED_CAP = "raised cap"
"""Why sampling stopped where the most samples were not fixed beforehand: the cap's own test is then not allowed."""

NETWORKS_TOOK = re.compile(r"networks took ([\d.]+) of")
"""What a job logs at its end, of the seconds that its networks took; `tell_times` in scripts/certify.py writes it."""

PER_IMAGE = re.compile(r"\((\d+) of \d+\): .* of (\d+) samples after (\d+) that chose the class,")
"""What a job logs of a finished image (`_tell`): its place, and its samples of both stages."""


def whole_identity(identity: Mapping[str, Any], models: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return all that determines a ballot: the configuration's part, the networks' checksums, the kind of device.

    Half precision is used on GPUs only, so samples of two kinds of device are kept apart. ``hash`` names the rest.
    """
    whole = {**identity, "models": dict(models), "device": device}
    if "diffusion" in models and device in ROUNDING:
        whole["rounding"] = ROUNDING[device]
    return {**whole, "hash": short_hash(whole)}


def configured(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration's part of a whole identity."""
    return {key: value for key, value in identity.items() if key not in ("models", "device", "rounding", "hash")}


def versions() -> str:
    """Say with what the counts were made."""
    packages = " ".join(f"{name} {version(name)}" for name in ("torch", "guided-diffusion-sdk"))
    return f"python {platform.python_version()} adds {__version__} {packages}"


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


def select(counter: Counter, picture: Picture, size: SampleSize, **sources: Any) -> Counting[Tally]:
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


@dataclass(frozen=True)
class Counted:
    """An image's samples of both stages."""

    picture: Picture
    selection: Tally
    estimation: Tally
    cap: str
    """What reaching the most samples is called."""

    @property
    def samples(self) -> int:
        """How many there are."""
        return self.selection.samples + self.estimation.samples

    def columns(self) -> dict[str, Any]:
        """Return them as columns of counts."""
        picture, selection, estimation = self.picture, self.selection, self.estimation
        return {
            "number": picture.number,
            "label": picture.label,
            "counts_selection": selection.counts.tolist(),
            "counts_estimation": estimation.counts.tolist(),
            "n0": selection.samples,
            "n": estimation.samples,
            "stopped": self.cap if estimation.stopped == "cap" else estimation.stopped,
            "evaluations": selection.evaluations + estimation.evaluations,
            "seconds": selection.seconds + estimation.seconds,
            "budget_share": max(selection.budget_share, estimation.budget_share),
            **(estimation.first.columns() if estimation.first else {}),
            "pixels": picture.checksum,
        }


def count_image(
    counter: Counter, picture: Picture, size: SampleSize, sigma: float, ledgers: FamilyLedgers, progress: Progress
) -> Counting[Counted]:
    """Count an image's selection samples, and then those that estimate the class that they select."""
    sources: dict[str, Any] = {"ledgers": ledgers, "progress": progress}
    selection = yield from select(counter, picture, size, **sources)
    about = label_of(picture) if size.asks_label else int(selection.counts.argmax())
    cap = "cap" if not size.asks_label or ledgers.fix_cap(picture, size.n) else RAISED_CAP
    estimation = yield from counter.count(
        picture,
        stage="estimation",
        limit=size.n,
        rule=size.estimation_rule(about, sigma),
        first=size.in_any_case(counter.chunk_size),
        **sources,
    )
    return Counted(picture, selection, estimation, cap)


def run_job(
    counter: Counter,
    images: Images,
    draw: Draw,
    *,
    at_once: int,
    size: SampleSize,
    ledgers: FamilyLedgers,
    identity: Mapping[str, Any],
    device: Device,
) -> pd.DataFrame:
    """Count the samples of every image and return a row for each; ``device`` is for the record.

    ``draw`` makes those that no ledger holds, ``at_once`` or a few more at a time.
    """
    logger.info("%s %s", LEDGER_IS, ledgers.path)
    done = HowFar(total=len(images) * (size.n0 + size.n), at_most=size.stop is not None)
    if not ledgers.reads_only:
        _tell_where_it_goes_on(ledgers, images, size, done)
    sigma, (method, votes) = identity["sigma"], counter.variant
    found: dict[int, Counted] = {}
    with _telling(done, f"{method} sigma={sigma:g} votes={votes}") as progress:
        countings = (count_image(counter, picture, size, sigma, ledgers, progress) for picture in images)
        for counted in side_by_side(countings, draw, at_once=at_once, ledgers=ledgers):
            done.total -= size.n0 + size.n - counted.samples
            found[counted.picture.number] = counted
            _tell(counted, f"{len(found)} of {len(images)}")
    setting, made_by = {"method": method, "sigma": sigma, "votes": votes}, provenance(identity, device)
    rows = [{**setting, **found[picture.number].columns(), **made_by} for picture in images]
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
    with progress_bar(total=done.total, desc=name, unit="sample") as bar:

        def progress(samples: int) -> None:
            done.samples += samples
            bar.total = done.total
            bar.update(samples)

        try:
            yield progress
        except Stopped as stopped:
            stopped.how_far = f" after {done}; the same command goes on from there"
            raise


def _tell(counted: Counted, place: str) -> None:
    """Log how an image went, as `PER_IMAGE` reads it."""
    picture, estimation = counted.picture, counted.estimation
    shown = int(estimation.counts.argmax()) if picture.label is None else picture.label
    logger.debug(
        "image %d (%s): %s %s has %.1f%% of %d samples after %d that chose the class, %.1f s",
        picture.number,
        place,
        "class" if picture.label is None else "true class",
        picture.class_name or shown,
        100 * estimation.counts[shown] / estimation.samples,
        estimation.samples,
        counted.selection.samples,
        counted.selection.seconds + estimation.seconds,
    )
