"""A run as people watch it: a line for every kind of work, one that shows how far it is, and errors in full.

`snakemake --logger adds` shows a run so (`snakemake_logger_plugin_adds` passes on what Snakemake logs). On a terminal
the line of progress stays below the others and changes; elsewhere it is written anew now and then.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from adds.machine.logs import FAILED, INTERRUPTED
from adds.monitor.status import Job, Outlook, Progress, duration, jobs_of, outlook, progress_of

PLAIN_SECONDS, PLAIN_SHARE, PLAIN_MOST = 30, 0.25, 600
"""How often progress is written where there is no terminal: ever more rarely, by the time that the run has taken."""

LOOK_SECONDS = 1.0
"""How often the run is looked at, unless that takes long."""

LOOKING_SHARE = 0.05
"""The most of its time that may go into looking."""

CLEAR = "\r\x1b[K"
"""Takes the line of progress off a terminal."""

STDERR = 2

SILENT_SECONDS = 2
"""After an interrupt."""

LAST_LINES = 20
"""Of a failed job's log, where no error stands in it."""

WHOLE = {"all", "everything"}
"""Rules that ask for everything, the plan included."""

SILENT = ("plan", "identify", "select_images", "provenance", "summary", "all", "everything", "fetch")
"""Rules that take no time, or only ask for others."""

WORK = {
    "reading the images": ("download_images", "images"),
    "getting the networks ready": (
        "fetch_weights",
        "obtain_classifier",
        "obtain_diffusion",
        "train_classifier",
        "train_diffusion",
        "make_reader",
        "compile_diffusion",
    ),
    "testing the networks on clean images": ("check_models",),
    "certifying": ("certify",),
    "denoising some images for the figures": (
        "denoise",
        "detail",
        "draw_samples",
        "spend_budget",
        "follow_trajectory",
    ),
    "certificates, tables and the paper's claims": (
        "merge",
        "certificates",
        "tables",
        "comparisons",
        "savings",
        "claims",
    ),
    "figures and pages": ("explorer", "report_page"),
}
"""Kinds of work, and the rules that do it; every figure's rule belongs to the last."""


def kind_of(rule: str) -> str:
    """Return what a rule does in a few words, or its name where nobody has said."""
    if rule.endswith("_figure"):
        return "figures and pages"
    return next((kind for kind, rules in WORK.items() if rule in rules), rule.replace("_", " "))


class Screen:
    """Lines that stay, and one line of progress."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, threading.Lock()
        self._moves = stream.isatty()
        self._progress = ""
        self._began = self._written = time.monotonic()

    def show(self, text: str) -> None:
        """Write what stays."""
        with self._lock:
            self._stream.write(f"{CLEAR if self._moves else ''}{text}\n")
            self._draw()
            self._stream.flush()

    def progress(self, text: str) -> None:
        """Show how far it is, in place of what was shown before; an empty text takes it away."""
        with self._lock:
            before, self._progress = self._progress, text
            if self._moves and (before or text):
                self._stream.write(CLEAR)
                self._draw()
            elif text and self._is_due():
                self._stream.write(f"  {text}\n")
                self._written = time.monotonic()
            self._stream.flush()

    def _is_due(self) -> bool:
        now = time.monotonic()
        pause = min(PLAIN_MOST, max(PLAIN_SECONDS, PLAIN_SHARE * (now - self._began)))
        return now - self._written >= pause

    def _draw(self) -> None:
        if self._moves and self._progress:
            columns = os.get_terminal_size(self._stream.fileno()).columns or 80
            self._stream.write(self._progress[: columns - 1])


class Captured:
    """What jobs write to stderr, passed on in whole lines, so that none falls into the line of progress.

    Interrupted while it imports, Python writes a traceback. That isn't passed on, nor what other jobs write at that
    moment: their tracebacks come through each other.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self.terminal = os.fdopen(os.dup(STDERR), "w")
        reading, writing = os.pipe()
        os.dup2(writing, STDERR)
        os.close(writing)
        self._thread = threading.Thread(target=self._pass_on, args=[reading], daemon=True)
        self._thread.start()

    def _pass_on(self, reading: int) -> None:
        held: list[str] = []
        silent_until = 0.0
        with os.fdopen(reading, errors="replace") as lines:
            for line in map(str.rstrip, lines):
                held.append(line)
                if line.startswith(("Traceback ", " ")) and held[0].startswith("Traceback "):
                    continue  # it ends in a line that is not indented
                if line == "KeyboardInterrupt":
                    silent_until = time.monotonic() + SILENT_SECONDS
                elif time.monotonic() > silent_until:
                    self._show("\n".join(held))
                held = []

    def release(self) -> None:
        """Give stderr back; what was written before is passed on, and what jobs that still run write."""
        os.dup2(self.terminal.fileno(), STDERR)
        self._thread.join(timeout=1)


class Run:
    """What a run of the workflow leaves on disk while it samples."""

    def __init__(self, results: Path, logs: Path) -> None:
        self._results, self._logs = results, logs
        self._done: dict[Job, Progress] = {}

    @property
    def plan(self) -> dict[str, Any]:
        """What the run set out to do; raises OSError or ValueError as long as it hasn't been written."""
        found: dict[str, Any] = json.loads((self._results / "plan.json").read_text())
        return found

    def size(self) -> str:
        """Say how much there is to certify."""
        plan = self.plan
        settings = plan["settings"]
        methods, sigmas = ({(s["method"], s["votes"]) for s in settings}, {s["sigma"] for s in settings})
        images = sum(plan["shards"].values())
        samples = sum(s["leads"] for s in settings) * images * (plan["n0"] + plan["n"])
        most = "at most " if plan["mode"] == "sequential" else ""
        return (
            f"{_counted(images, 'image')} with {_counted(len(methods), 'method')} at "
            f"{_counted(len(sigmas), 'noise level')}: {most}{samples:,} samples"
        )

    def outlook(self) -> Outlook:
        """Return how far sampling is. Jobs that are done are looked at once."""
        plan, now = self.plan, time.time()
        found = []
        for job in jobs_of(plan):
            progress = self._done.get(job) or progress_of(job, self._results, self._logs, now)
            if progress.state == "done":
                self._done[job] = progress
            found.append(progress)
        return outlook(plan, found)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class Watch:
    """Shows a run from its first job to its last."""

    def __init__(self) -> None:
        self.interrupted = self._closed = False
        self._captured = Captured(self.show)
        self._screen = Screen(self._captured.terminal)
        self._started = time.monotonic()
        self._kinds: set[str] = set()
        self._failed: set[int] = set()
        self._said = ""
        self._finished, self._jobs, self._whole = 0, 0, False
        self._run: Run | None = None
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    @property
    def failed(self) -> bool:
        """Whether a job has failed."""
        return bool(self._failed)

    def show(self, text: str) -> None:
        """Show what somebody else has to say, once in a row; what is said of an interrupt is said at the end."""
        if not self.interrupted and text != self._said:
            self._said = text
            self._screen.show(text)

    def begin(self, jobs: Mapping[str, int]) -> None:
        """Say how much there is to do, and begin to show progress; ``jobs`` are so many by rule, and in all."""
        self._jobs, self._whole = jobs["total"], bool(WHOLE & jobs.keys())
        self._screen.show(f"{_counted(self._jobs, 'job')} to run; their logs are in logs/")
        if not self._looking.is_alive():
            self._looking.start()

    def start(self, rule: str, output: Sequence[str], log: Sequence[str]) -> None:
        """Say what is being done, where a job is the first of its kind."""
        kind = kind_of(rule)
        if rule == "certify" and self._whole and not self._run:
            # .../counts/{method}/sigma{sigma}/votes{votes}/{shard}.parquet, and a log in the same place
            self._run = Run(Path(output[0]).parents[4], Path(log[0]).parents[4])
        if rule in SILENT or kind in self._kinds:
            return
        self._kinds.add(kind)
        self._screen.show(f"{kind} {self._size()}".rstrip() if rule == "certify" else kind)

    def _size(self) -> str:
        try:
            return self._run.size() if self._run else ""
        except (OSError, ValueError):
            return ""

    def finish(self, done: int, jobs: int) -> None:
        """Take note of jobs that are done."""
        self._finished, self._jobs = done, jobs
        if done == jobs:
            self._end()
            self._screen.show(f"{_counted(jobs, 'job')} done in {duration(time.monotonic() - self._started)}")

    def fail(self, job: int, rule: str, logs: Sequence[str]) -> None:
        """Show the last words of a job that failed, and where its log is; nothing where it was interrupted."""
        texts = {log: Path(log).read_text(errors="replace") if Path(log).exists() else "" for log in logs}
        if (
            self.interrupted
            or job in self._failed
            or any(f": {INTERRUPTED}" in _last_line(text) for text in texts.values())
        ):
            return
        self._failed.add(job)
        self._screen.show(f"{rule} failed")
        for log, text in texts.items():
            self._screen.show("\n".join(f"    {line}" for line in last_words(text)))
            self._screen.show(f"    (its log: {log})")

    def close(self) -> None:
        """Take the line of progress away; say how far an interrupted run has come."""
        if self._closed:
            return
        self._closed = True
        self._captured.release()
        self._end()
        if self.interrupted:
            self._screen.show(f"{INTERRUPTED} after {self._how_far()}; the same command goes on from there")

    def _end(self) -> None:
        self._ended.set()
        if self._looking.is_alive():
            self._looking.join()
        self._screen.progress("")

    def _how_far(self) -> str:
        try:
            found = self._run.outlook() if self._run else None
        except (OSError, ValueError):
            found = None
        return found.so_far if found else f"{self._finished} of {_counted(self._jobs, 'job')}"

    def _look(self) -> None:
        """Show progress until the run has ended; a look at many jobs takes long, and is taken less often."""
        pause, text = LOOK_SECONDS, ""
        while not self._ended.wait(pause):
            began = time.monotonic()
            jobs = f"{self._finished} of {_counted(self._jobs, 'job')}"
            try:
                found = self._run.outlook() if self._run else None
            except (OSError, ValueError):  # files are written while they are read
                continue
            text = f"{jobs}; {found}" if found and found.samples < found.total else jobs
            self._screen.progress(text)
            pause = max(LOOK_SECONDS, (time.monotonic() - began) / LOOKING_SHARE)


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def last_words(text: str) -> list[str]:
    """Return a log from its last error on, traceback and all, or else its last lines."""
    lines = text.rstrip().splitlines()
    errors = [number for number, line in enumerate(lines) if FAILED in line]
    return lines[errors[-1] :] if errors else lines[-LAST_LINES:]
