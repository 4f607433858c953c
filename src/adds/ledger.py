"""An append-only file of predictions, so that a job that dies loses at most the chunk it was drawing.

Every line is a checksum and a JSON record. A line is flushed to disk before the next chunk is drawn; a line
that was cut off by a kill fails its checksum and is dropped when the file is opened again. Since a sample's
random numbers depend on its number only, the samples that follow are the same as without the interruption.
"""

import base64
import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adds.noise import Stage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chunk:
    """The predictions of samples ``first``, ``first + 1``, ... of one image in one stage, and what they cost."""

    image: int
    stage: Stage
    first: int
    predictions: NDArray[np.uint16]
    evaluations: int
    seconds: float
    budget_share: float

    def head(self, count: int) -> "Chunk":
        """Return the first ``count`` samples, with their part of the cost."""
        if count >= len(self.predictions):
            return self
        part = count / len(self.predictions)
        return Chunk(
            self.image,
            self.stage,
            self.first,
            self.predictions[:count],
            round(self.evaluations * part),
            self.seconds * part,
            self.budget_share,
        )


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


def _encode(chunk: Chunk) -> dict[str, Any]:
    packed = zlib.compress(chunk.predictions.astype("<u2").tobytes())
    return {**chunk.__dict__, "predictions": base64.b64encode(packed).decode()}


def _decode(record: dict[str, Any]) -> Chunk:
    packed = zlib.decompress(base64.b64decode(record["predictions"]))
    return Chunk(**{**record, "predictions": np.frombuffer(packed, "<u2").astype(np.uint16)})


class Ledger:
    """The chunks that were drawn so far under one identity: everything that determines a prediction."""

    def __init__(self, path: Path | str, identity: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = {"identity": json.loads(json.dumps(identity))}
        records = list(_records(self.path.read_bytes())) if self.path.exists() else []
        if records and records[0][0] == header:
            intact = records[-1][1]
            if intact < self.path.stat().st_size:
                logger.warning("%s ends in a damaged record; what follows it is drawn again", self.path)
                os.truncate(self.path, intact)
        else:
            if self.path.exists():
                logger.warning("%s is not a ledger of these parameters; starting anew", self.path)
            records = []
            self.path.write_bytes(_line(header))
        self._chunks: dict[tuple[int, Stage], list[Chunk]] = {}
        for record, _ in records[1:]:
            self._remember(_decode(record))

    def append(self, chunk: Chunk) -> None:
        """Write a chunk to disk; it must follow on the image's last one."""
        with self.path.open("ab") as file:
            file.write(_line(_encode(chunk)))
            file.flush()
            os.fsync(file.fileno())

    def chunks(self, image: int, stage: Stage) -> list[Chunk]:
        """Return the chunks of one image and stage that were on disk when the ledger was opened."""
        return self._chunks.get((image, stage), [])

    def _remember(self, chunk: Chunk) -> None:
        known = self._chunks.setdefault((chunk.image, chunk.stage), [])
        expected = known[-1].first + len(known[-1].predictions) if known else 0
        if chunk.first != expected:
            raise ValueError(
                f"{self.path}: sample {chunk.first} of image {chunk.image} follows sample {expected - 1}; "
                "two jobs may have written to this file: delete it"
            )
        known.append(chunk)
