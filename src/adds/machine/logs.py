"""One way of logging for every job: to its log file and to the terminal, uncaught errors included."""

import logging
import signal
import sys
from pathlib import Path
from types import TracebackType


def configure_logging(path: Path | str, name: str) -> None:
    """Log to ``path`` and to stderr under the job's ``name``; the last words of a failed job reach both."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        level=logging.WARNING,
        format=f"%(asctime)s %(levelname)s {name}: %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        handlers=[logging.FileHandler(path), logging.StreamHandler(sys.stderr)],
        force=True,
    )
    logging.getLogger("adds").setLevel(logging.INFO)
    logging.captureWarnings(True)

    def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        logging.getLogger().critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))

    sys.excepthook = log_uncaught


def exit_when_terminated(saved: str) -> None:
    """On SIGTERM (a scheduler wants the node back) say what is ``saved`` and exit at once, as killed."""

    def stop(*_: object) -> None:
        logging.getLogger("adds").warning("terminated: %s", saved)
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
