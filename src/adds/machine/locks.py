"""Locks between processes: the kernel releases them when a process ends, however it ends."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)


@contextmanager
def exclusive(path: Path, waiting_for: str) -> Iterator[None]:
    """Hold a lock file while the block runs; wait for another process that has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("waiting for another job: %s", waiting_for)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            logger.warning("%s can't be locked on this file system: %s", path, error)
        yield
