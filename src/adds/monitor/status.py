"""How a run is going, seen from outside: jobs, samples, samples per second, time left.

    python -m adds.monitor.status [EXPERIMENT]

It only reads what the run leaves on disk, so it works while Snakemake holds its lock, and from any machine of a
cluster that sees the folder.
"""

import argparse
import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adds.machine.logs import FAILED, INTERRUPTED
from adds.registry import title
from adds.sampling.job import LEDGER_IS, PER_IMAGE, configured, of_samples
from adds.sampling.ledger import read_header

State = Literal["done", "running", "interrupted", "failed", "waiting"]
STATES: tuple[State, ...] = ("done", "running", "interrupted", "failed", "waiting")

FRESH_SECONDS = 900
"""A job whose files haven't changed for so long is not running any more."""

STOPPED = re.compile(rf" INFO [^:]*: ({INTERRUPTED}\b.*)")


@dataclass(frozen=True)
class Job:
    """One certification job: a method, sigma, number of votes and shard of images."""

    method: str
    sigma: str
    votes: int
    shard: str
    images: int
    leads: bool
    evaluations: float = 1.0
    """What a sample is worth, in evaluations of the diffusion model: a guess as long as nothing has been measured."""
    samples: int | None = None
    """Of an image, where their number is fixed."""
    identity: str = ""
    """What the configuration says of its samples, as JSON."""

    def is_of(self, ledger: Path, needed: int) -> bool:
        """Tell whether counts are of this configuration, by the ledger and the samples that their job told of."""
        header = read_header(ledger) if self.identity and ledger.is_file() else None
        same = header is None or _as_text(configured(header["identity"])) == self.identity
        return same and (not needed or self.samples is None or needed == self.images * self.samples)

    @property
    def name(self) -> str:
        """How the job is called."""
        return f"{title(self.method, self.votes)}, sigma {self.sigma}, shard {self.shard}"

    @property
    def setting(self) -> tuple[str, str, int]:
        """What it shares with the jobs of other shards."""
        return self.method, self.sigma, self.votes


@dataclass(frozen=True)
class Progress:
    """What is on disk of a job: finished images and their samples, samples drawn, and the seconds they took."""

    job: Job
    state: State
    images: int = 0
    needed: int = 0
    """Samples that the finished images needed, drawn by this job or by another."""
    samples: int = 0
    seconds: float = 0.0
    last_line: str = ""


def jobs_of(plan: Mapping[str, Any]) -> list[Job]:
    """Return all jobs of a plan, as the workflow wrote it when it started."""
    return [
        Job(
            setting["method"],
            setting["sigma"],
            setting["votes"],
            shard,
            images,
            setting["leads"],
            setting.get("evaluations", 1.0),
            plan["n0"] + plan["n"] if plan["mode"] == "fixed" else None,
            _as_text(setting["identity"]) if "identity" in setting else "",
        )
        for setting in plan["settings"]
        for shard, images in plan["shards"].items()
    ]


def _as_text(identity: Mapping[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True)


def recorded(ledger: Path) -> tuple[int, float, float]:
    """Return samples, seconds and the time of the last change of a job's ledger."""
    if not ledger.is_file():
        return 0, 0.0, 0.0
    samples, seconds = 0, 0.0
    for line in ledger.read_text(errors="replace").splitlines()[1:]:
        try:
            record = json.loads(line.partition(" ")[2])
        except json.JSONDecodeError:  # being written right now, or cut off
            continue
        samples += record["samples"]
        seconds += record["shared_seconds"] + record["vote_seconds"]
    return samples, seconds, ledger.stat().st_mtime


def progress_of(job: Job, results: Path, logs: Path, now: float) -> Progress:
    """Tell a job's state from its counts, its log, and the ledger that the log names.

    A log holds every attempt; the last one begins where it names its ledger. Counts of an older configuration stay
    until the job runs anew: it is waiting.
    """
    place = f"{job.method}/sigma{job.sigma}/votes{job.votes}/{job.shard}"
    done = (results / "counts" / f"{place}.parquet").exists()
    log = logs / "certify" / f"{place}.log"
    if not log.exists():
        return Progress(job, "done", job.images) if done else Progress(job, "waiting")
    _, named, text = log.read_text(errors="replace").rpartition(LEDGER_IS)
    ledger = Path(text.partition("\n")[0].strip() if named else "")
    samples, seconds, changed = recorded(ledger)
    told = [[int(number) for number in found] for found in PER_IMAGE.findall(text)]
    images, needed = told[-1][0] if told else 0, sum(n + n0 for _, n, n0 in told)
    needed = needed if images == job.images or not done else 0
    if done and not job.is_of(ledger, needed):
        return Progress(job, "waiting")
    if done:
        return Progress(job, "done", job.images, needed, samples, seconds)
    found = images, needed, samples, seconds
    if errors := [line for line in text.splitlines() if FAILED in line]:
        return Progress(job, "failed", *found, errors[-1])
    if stopped := STOPPED.findall(text):
        return Progress(job, "interrupted", *found, stopped[-1])
    running = now - max(changed, log.stat().st_mtime) < FRESH_SECONDS
    return Progress(job, "running" if running else "waiting", *found)


def duration(seconds: float) -> str:
    """Write a duration for people."""
    if seconds < 90:
        return f"{10 * math.ceil(seconds / 10)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"


@dataclass(frozen=True)
class Outlook:
    """How far sampling is, and how long it is going to take: counted for jobs that draw, as others only read.

    ``total`` is the number of samples in all, ``at_most`` where nothing is known yet of how early images stop.
    ``seconds`` are those left if the running jobs shared all that is left; None where nothing has been measured.
    """

    samples: int
    total: int
    at_most: bool
    about: bool
    rate: float
    seconds: float | None

    @property
    def so_far(self) -> str:
        """How many samples of how many."""
        how = "at most " if self.at_most else "about " if self.about else ""
        return f"{self.samples:,} of {how}{self.total:,} samples"

    def __str__(self) -> str:
        if self.seconds is None:
            return self.so_far
        rate = f"; {self.rate:,.1f} per second" if self.rate else ""
        most = "at most" if self.at_most else "about"
        return f"{self.so_far}; {most} {duration(self.seconds)} of sampling left{rate}"


def outlook(plan: Mapping[str, Any], found: Iterable[Progress]) -> Outlook:
    """Look ahead. In sequential mode an image is taken to need what finished ones of its setting did, on average.

    Where none of its setting has finished, those of all settings stand in, and where none has at all, the most that an
    image may need. A setting whose speed nobody has measured is taken to run at that of the others, per evaluation.
    """
    drawing = [progress for progress in found if progress.job.leads]
    most, sequential = plan["n0"] + plan["n"], plan["mode"] == "sequential"
    means = _means(drawing) if sequential else {}
    costs = _costs(drawing)
    samples, total, left = 0, 0, 0.0
    for progress in drawing:
        job = progress.job
        each = means.get(job.setting, means.get(None, most))
        if progress.state == "done":
            drawn = progress.needed or round(job.images * each)
            wanted = float(drawn)
        else:
            drawn = min(max(progress.samples, progress.needed), job.images * most)
            wanted = max(drawn, progress.needed + each * (job.images - progress.images))
        samples, total = samples + drawn, total + round(wanted)
        left += (wanted - drawn) * costs.get(job.setting, job.evaluations * costs.get(None, 0.0))
    running = [progress for progress in drawing if progress.state == "running"]
    rate = sum(progress.samples / progress.seconds for progress in running if progress.seconds)
    seconds = left / len(running) if running and costs else None
    return Outlook(samples, total, sequential and not means, sequential, rate, seconds)


def _means(found: Iterable[Progress]) -> dict[tuple[str, str, int] | None, float]:
    """Return the samples that a finished image needed on average: by setting, and in all under None."""
    sums: dict[tuple[str, str, int] | None, tuple[int, int]] = {}
    for progress in found:
        if progress.needed:
            for key in (progress.job.setting, None):
                images, needed = sums.get(key, (0, 0))
                sums[key] = images + progress.images, needed + progress.needed
    return {key: needed / images for key, (images, needed) in sums.items()}


def _costs(found: Iterable[Progress]) -> dict[tuple[str, str, int] | None, float]:
    """Return measured seconds per sample by setting, and per evaluation under None."""
    sums: dict[tuple[str, str, int] | None, tuple[float, float]] = {}
    for progress in found:
        if progress.seconds:
            for key, evaluations in ((progress.job.setting, 1.0), (None, progress.job.evaluations)):
                samples, seconds = sums.get(key, (0.0, 0.0))
                sums[key] = samples + progress.samples * evaluations, seconds + progress.seconds
    return {key: seconds / samples for key, (samples, seconds) in sums.items()}


def report(plan: Mapping[str, Any], found: list[Progress]) -> str:
    """Write the state of a run for the terminal."""
    by_state = {state: [progress for progress in found if progress.state == state] for state in STATES}
    images = sum(progress.images for progress in found)
    lines = [
        f"{plan['experiment']}: {len(by_state['done'])} of {len(found)} jobs done, "
        + ", ".join(f"{len(by_state[state])} {state}" for state in STATES[1:]),
        f"image-method pairs finished: {images:,} of {sum(progress.job.images for progress in found):,}",
    ]
    each = plan["n0"] + plan["n"]
    for progress in by_state["running"]:
        job = progress.job
        so_far = of_samples(progress.samples, job.images * each, at_most=plan["mode"] == "sequential")
        lines.append(f"  running: {job.name}: {so_far}, image {min(progress.images + 1, job.images)} of {job.images}")
    lines += [f"  {progress.job.name}: {progress.last_line}" for progress in by_state["interrupted"]]
    lines += [f"  failed:  {progress.job.name}: {progress.last_line}" for progress in by_state["failed"]]
    return "\n".join([*lines, str(outlook(plan, found))])


def main() -> None:
    """Print how a run is going."""
    parser = argparse.ArgumentParser(prog="python -m adds.monitor.status", description=main.__doc__)
    parser.add_argument("experiment", nargs="?", help="name of the experiment; the one that started last by default")
    name = parser.parse_args().experiment
    plans = sorted(Path("results").glob(f"{name or '*'}/plan.json"), key=lambda path: path.stat().st_mtime)
    if not plans:
        parser.exit(1, f"no run of {name or 'any experiment'} has been started in this folder\n")
    plan = json.loads(plans[-1].read_text())
    results, logs, now = plans[-1].parent, Path("logs") / plan["experiment"], time.time()
    print(report(plan, [progress_of(job, results, logs, now) for job in jobs_of(plan)]))


if __name__ == "__main__":
    main()
