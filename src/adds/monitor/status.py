"""How a run is going, seen from outside: jobs, images, samples per second, time left.

    python -m adds.monitor.status [EXPERIMENT]

It only reads what the run leaves on disk, so it works while Snakemake holds its lock, and from any machine of a
cluster that sees the folder.
"""

import argparse
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adds.registry import title
from adds.sampling.job import LEDGER_IS

State = Literal["done", "running", "failed", "waiting"]

FRESH_SECONDS = 900
"""A job whose files haven't changed for so long is not running any more."""


@dataclass(frozen=True)
class Job:
    """One certification job: a method, sigma, number of votes and shard of images."""

    method: str
    sigma: str
    votes: int
    shard: str
    images: int
    leads: bool

    @property
    def name(self) -> str:
        """How the job is called."""
        return f"{title(self.method, self.votes)}, sigma {self.sigma}, shard {self.shard}"


@dataclass(frozen=True)
class Progress:
    """What is on disk of a job: images whose counts are known, samples drawn, and the seconds they took."""

    job: Job
    state: State
    images: int
    samples: int = 0
    seconds: float = 0.0
    last_line: str = ""


def jobs_of(plan: Mapping[str, Any]) -> list[Job]:
    """Return all jobs of a plan, as the workflow wrote it when it started."""
    return [
        Job(setting["method"], setting["sigma"], setting["votes"], shard, images, setting["leads"])
        for setting in plan["settings"]
        for shard, images in plan["shards"].items()
    ]


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
    """Tell a job's state from its counts, its log, and the ledger that the log names."""
    place = f"{job.method}/sigma{job.sigma}/votes{job.votes}/{job.shard}"
    if (results / "counts" / f"{place}.parquet").exists():
        return Progress(job, "done", job.images)
    log = logs / "certify" / f"{place}.log"
    if not log.exists():
        return Progress(job, "waiting", 0)
    text = log.read_text(errors="replace")
    named = re.findall(rf"{LEDGER_IS} (.*)", text)
    samples, seconds, changed = recorded(Path(named[-1])) if named else (0, 0.0, 0.0)
    told = re.findall(r"\((\d+) of \d+\)", text)
    images = int(told[-1]) if told else 0
    errors = [line for line in text.splitlines() if " CRITICAL " in line or ": terminated: " in line]
    if errors:
        return Progress(job, "failed", images, samples, seconds, errors[-1])
    running = now - max(changed, log.stat().st_mtime) < FRESH_SECONDS
    return Progress(job, "running" if running else "waiting", images, samples, seconds)


def hours(seconds: float) -> str:
    """Write a duration for people."""
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"


def seconds_left(found: list[Progress], samples_per_image: int) -> float | None:
    """Return how long the jobs that running ones would take if they shared all that is left, or None if unknown.

    Jobs that read their family's samples take hardly any time and are left out.
    """
    measured = [job for job in found if job.seconds]
    running = sum(job.state == "running" for job in found)
    if not measured or not running:
        return None
    mean = sum(job.seconds for job in measured) / sum(job.samples for job in measured)
    left = 0.0
    for progress in found:
        if progress.state != "done" and progress.job.leads:
            each = progress.seconds / progress.samples if progress.samples else mean
            left += each * max(0, progress.job.images * samples_per_image - progress.samples)
    return left / running


def report(plan: Mapping[str, Any], found: list[Progress]) -> str:
    """Write the state of a run for the terminal."""
    by_state: dict[State, list[Progress]] = {"done": [], "running": [], "failed": [], "waiting": []}
    for progress in found:
        by_state[progress.state].append(progress)
    images = sum(progress.images for progress in found)
    lines = [
        f"{plan['experiment']}: {len(by_state['done'])} of {len(found)} jobs done, "
        + ", ".join(f"{len(by_state[state])} {state}" for state in ("running", "failed", "waiting")),
        f"images certified: {images:,} of {sum(progress.job.images for progress in found):,}",
    ]
    samples_per_image = plan["n0"] + plan["n"]
    rate = sum(job.samples / job.seconds for job in by_state["running"] if job.seconds)
    for progress in by_state["running"]:
        total = progress.job.images * samples_per_image
        lines.append(
            f"  running: {progress.job.name}: {progress.samples:,} of {total:,} samples, image "
            f"{min(progress.images + 1, progress.job.images)} of {progress.job.images}"
        )
    lines += [f"  failed:  {job.job.name}: {job.last_line}" for job in by_state["failed"]]
    left = seconds_left(found, samples_per_image)
    if left is not None:
        most = "at most " if plan["mode"] == "sequential" else "about "
        lines.append(f"{rate:,.1f} samples per second; {most}{hours(left)} left at this rate")
    return "\n".join(lines)


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
