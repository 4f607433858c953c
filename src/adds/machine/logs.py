"""One way of logging for every job: to its log file and to the terminal, uncaught errors and interrupts included."""

import contextlib
import logging
import os
import platform
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

WATCHED = "ADDS_WATCHED"
"""The environment variable that names the machine on whose terminal `adds.monitor.watch` shows a run as a whole."""

FAILED = " CRITICAL "
"""What stands in the last words of a job that failed, in its log."""

INTERRUPTED = "interrupted"
"""What the log of a job says that was stopped from outside, for `adds.monitor.status`."""


def watched() -> bool:
    """Tell whether somebody shows the run as a whole: then a job leaves the terminal alone, apart from warnings.

    A job on another machine isn't seen there; its terminal is the file of a scheduler, and plain.
    """
    return os.environ.get(WATCHED) == platform.node()


def progress_bar(rows: Iterable[Any] | None = None, **shown: Any) -> Any:
    """Return tqdm's bar over ``rows``: none where the run is shown as a whole, seldom drawn where nobody looks."""
    from tqdm import tqdm

    return tqdm(rows, mininterval=1 if sys.stderr.isatty() else 30, disable=watched(), **shown)


def _is_for_people(record: logging.LogRecord) -> bool:
    """Tell whether a watched job has to say something: what libraries tell each other's programmers is for its log.

    A failed job's last words are shown by whoever shows the run.
    """
    of_libraries = record.name == "py.warnings" and re.search("(Future|Deprecation)Warning", record.getMessage())
    return record.levelno < logging.CRITICAL and not of_libraries


def configure_logging(path: Path | str, name: str) -> None:
    """Log to ``path`` and to stderr under the job's ``name``; the last words of a failed job reach both.

    Details (DEBUG), a line for every image for instance, are for the file only.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = f"%(asctime)s %(levelname)s {name}: %(message)s"
    file, terminal = logging.FileHandler(path), logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING if watched() else logging.INFO)
    if watched():
        terminal.addFilter(_is_for_people)
    logging.basicConfig(
        level=logging.WARNING, format=text, datefmt="%Y-%m-%d %H:%M:%S", handlers=[file, terminal], force=True
    )
    logging.getLogger("adds").setLevel(logging.DEBUG)
    logging.captureWarnings(True)

    def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            logging.getLogger("adds").info(INTERRUPTED)
        else:
            logging.getLogger().critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))

    sys.excepthook = log_uncaught


class Stopped(SystemExit):
    """Ctrl-C, or a scheduler that wants the node back: the end of a job, without a traceback.

    Whoever knows how far the job had come adds it to ``how_far``.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.how_far = ""


def stop_on_signals() -> None:
    """Raise `Stopped` on SIGINT and SIGTERM, once: a second one doesn't disturb the last words."""

    def stop(number: int, _: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


@contextlib.contextmanager
def telling_when_stopped() -> Iterator[None]:
    """Leave a line in the log where what is done inside is stopped from outside."""
    try:
        yield
    except Stopped as stopped:
        logging.getLogger("adds").info("%s%s", INTERRUPTED, stopped.how_far)
        raise
