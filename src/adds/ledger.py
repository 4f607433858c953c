"""An append-only file of predictions, so that a job that dies loses at most the chunk it was drawing.

Every line is a checksum and a JSON record. A line is flushed to disk before the next chunk is drawn; a line
that was cut off by a kill fails its checksum and is dropped when the file is opened again. Since a sample's
random numbers depend on its number only, the samples that follow are the same as without the interruption.

A chunk keeps every vote of every sample. So the ledger of ADDS with 5 votes also holds ADDS with 1 vote (its
first), and ADDS without unguided denoising (its one-shot image), and their jobs need not draw them again.
"""

import base64
import errno
import fcntl
import json
import logging
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adds.naming import Stage

logger = logging.getLogger(__name__)

Classes = NDArray[np.uint16]

LOCK_PATIENCE = 600.0
"""Seconds to wait for a ledger's lock: file servers may hold that of a node that is lost for a minute or two."""


@dataclass(frozen=True)
class Chunk:
    """Samples ``first_sample``, ``first_sample + 1``, ... of one image in one stage, and what they cost.

    ``ballots`` [samples, votes] are the classes voted for; ``oneshot`` [samples] those of the one-shot
    denoised images, or empty where they were not asked for. ``pixels`` is a checksum of the image.
    """

    method: str
    image: int
    stage: Stage
    first_sample: int
    pixels: str
    ballots: Classes
    oneshot: Classes
    shared_evaluations: int
    vote_evaluations: int
    shared_seconds: float
    vote_seconds: float
    budget_share: float

    def __len__(self) -> int:
        return len(self.ballots)


def _pack(classes: Classes) -> str:
    return base64.b64encode(zlib.compress(classes.astype("<u2").tobytes())).decode()


def _unpack(text: str) -> Classes:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u2").astype(np.uint16)


def _encode(chunk: Chunk) -> dict[str, Any]:
    return {
        **vars(chunk),
        "ballots": _pack(chunk.ballots),
        "oneshot": _pack(chunk.oneshot),
        "samples": len(chunk),
        "votes": chunk.ballots.shape[1],
    }


def _decode(record: dict[str, Any]) -> Chunk:
    votes = record.pop("votes")
    del record["samples"]  # for readers that don't unpack the ballots
    ballots = _unpack(record["ballots"]).reshape(-1, votes)
    return Chunk(**{**record, "ballots": ballots, "oneshot": _unpack(record["oneshot"])})


def _line(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":"), sort_keys=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _records(data: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each intact record from the start of the file, and the offset at which it ends."""
    offset = 0
    for line in data.splitlines(keepends=True):
        offset += len(line)
        checksum, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
            return
        yield json.loads(text), offset


def read_identity(path: Path | str) -> dict[str, Any] | None:
    """Return the identity that a ledger's first line states, or None where there is no such line (yet)."""
    with Path(path).open("rb") as file:
        for record, _ in _records(file.readline()):
            return dict(record["identity"])
    return None


class Ledger:
    """The chunks that were drawn so far under one identity: everything that determines a prediction."""

    def __init__(
        self,
        path: Path | str,
        identity: Mapping[str, Any],
        *,
        read_only: bool = False,
        patience: float = LOCK_PATIENCE,
    ) -> None:
        self.path = Path(path)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._header = {"identity": self.identity}
        self._chunks: dict[tuple[int, Stage], list[Chunk]] = {}
        self._file = None if read_only else self._lock(patience)
        data = self.path.read_bytes() if self.path.exists() else b""
        records = list(_records(data))
        foreign = records[0][0] != self._header if records else b"\n" in data
        if foreign:
            logger.warning("%s is not a ledger of these parameters: it is not used", self.path)
            records = []
        for record, _ in records[1:]:
            chunk = _decode(record)
            self._chunks.setdefault((chunk.image, chunk.stage), []).append(chunk)
        if self._file is not None:
            self._prepare(self._file, data, intact=records[-1][1] if records else 0, foreign=foreign)

    def _lock(self, patience: float) -> IO[bytes]:
        """Open the file for this process alone, until it ends; wait for another one that has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("ab")
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.close()
                    raise RuntimeError(
                        f"another process is drawing samples into {self.path}: stop it, or run this job later"
                    ) from None
                logger.warning("waiting for another process that is drawing samples into %s", self.path)
                time.sleep(min(30.0, patience))
            except OSError as error:
                logger.warning("%s can't be locked on this file system (%s): start no job twice", self.path, error)
                return file
            else:
                return file

    def _prepare(self, file: IO[bytes], data: bytes, *, intact: int, foreign: bool) -> None:
        """Cut off what was damaged, so that new chunks follow on the last intact one; set a foreign file aside."""
        if foreign:
            aside = self.path.with_name(f"{self.path.name}.{zlib.crc32(data):08x}.aside")
            aside.write_bytes(data)
            logger.warning("what it held is kept in %s", aside)
        elif 0 < intact < len(data):
            logger.warning("%s ends in a damaged record: what follows it is drawn again", self.path)
        os.ftruncate(file.fileno(), intact)
        if intact == 0:
            self._write(file, self._header)

    def _write(self, file: IO[bytes], record: Mapping[str, Any]) -> None:
        """Write a record whole, or not at all as far as later readers can see."""
        line = _line(record)
        try:
            if os.write(file.fileno(), line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError as error:
            raise OSError(
                error.errno, f"{error.strerror}: samples could not be written", str(self.path)
            ) from error

    def append(self, chunk: Chunk) -> None:
        """Write a chunk to disk."""
        if self._file is None:
            raise ValueError(f"{self.path} was opened to be read only")
        self._write(self._file, _encode(chunk))

    def close(self) -> None:
        """Let other processes have the file."""
        if self._file is not None:
            self._file.close()

    def chunks(self, image: int, stage: Stage) -> list[Chunk]:
        """Return the chunks of one image and stage that were on disk when the ledger was opened."""
        return self._chunks.get((image, stage), [])
