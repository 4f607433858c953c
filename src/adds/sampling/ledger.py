"""Every prediction that was drawn, kept so that no job ever draws it again; needs no torch.

A ledger is an append-only file. Every line is a checksum and a JSON record. Lines are flushed to disk before the next
samples are drawn; a line that was cut off by a kill fails its checksum and is dropped when the file is opened again.
Since a sample's random numbers depend on its number only, the samples that follow are the same as without the
interruption.

One store holds the ledgers of all experiments:

    results/ledger/{family}-sigma{sigma}-{identity}/{images}-{method}{votes}.jsonl

A folder is a family's: its members, ADDS with any number of votes and ADDS without unguided denoising for instance,
read each other's samples, because a chunk keeps every vote that was cast. Its name ends in a checksum of everything
that determines a ballot. A file is one writing job's, named by the images that it is for, which its first line lists.
A sample is found by its image's number and pixels: the order of a list, the size of a job or the name of an experiment
don't matter, and folders of two sites can be copied into one.
"""

import base64
import contextlib
import errno
import fcntl
import json
import logging
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adds.data.images import Picture
from adds.experiment import short_hash
from adds.registry import Stage, Variant

logger = logging.getLogger(__name__)

Classes = NDArray[np.uint16]

LOCK_PATIENCE = 600.0
"""Seconds to wait for a ledger's lock: file servers may hold that of a node that is lost for a minute or two."""

PER_MILLE = 1000


@dataclass(frozen=True)
class Chunk:
    """Samples ``first_sample``, ``first_sample + 1``, ... of one image in one stage, and what they cost.

    ``ballots`` [samples, votes] are the classes voted for, in the votes' order, and UNCAST (`adds.methods.majority`)
    where a vote wasn't cast; ``contained`` [samples] those of methods that the drawing method contains, by name.
    ``image`` is the image's number, ``pixels`` its checksum. For guided methods ``stop_timestep`` [samples] is the
    timestep of the state at which the budget was spent, and ``spent_before`` [samples] the share (in thousandths) of
    coordinates that had spent theirs before the last guided step; both are empty for the others.
    """

    method: str
    image: int
    pixels: str
    stage: Stage
    first_sample: int
    ballots: Classes
    contained: Mapping[str, Classes] = field(default_factory=dict)
    stop_timestep: Classes = field(default_factory=lambda: np.empty(0, np.uint16))
    spent_before: Classes = field(default_factory=lambda: np.empty(0, np.uint16))
    shared_evaluations: int = 0
    vote_evaluations: int = 0
    shared_seconds: float = 0.0
    vote_seconds: float = 0.0
    budget_share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.budget_share <= 1:
            raise ValueError(
                f"image {self.image} has samples that spent {self.budget_share} of their privacy budget: "
                "they certify nothing"
            )

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
        "contained": {name: _pack(classes) for name, classes in chunk.contained.items()},
        "stop_timestep": _pack(chunk.stop_timestep),
        "spent_before": _pack(chunk.spent_before),
        "samples": len(chunk),
        "votes": chunk.ballots.shape[1],
    }


def _decode(record: dict[str, Any]) -> Chunk:
    votes = record.pop("votes")
    del record["samples"]  # for readers that don't unpack the ballots
    arrays = {name: _unpack(record[name]) for name in ("stop_timestep", "spent_before")}
    contained = {name: _unpack(classes) for name, classes in record["contained"].items()}
    ballots = _unpack(record["ballots"]).reshape(-1, votes)
    return Chunk(**{**record, **arrays, "ballots": ballots, "contained": contained})


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


def read_header(path: Path | str) -> dict[str, Any] | None:
    """Return a ledger's first record, its identity and its images, or None where there is none (yet)."""
    with Path(path).open("rb") as file:
        for record, _ in _records(file.readline()):
            return record
    return None


class Ledger:
    """The chunks of one file: what one job has drawn under one identity."""

    def __init__(
        self,
        path: Path | str,
        identity: Mapping[str, Any],
        images: Sequence[tuple[int, str]] = (),
        *,
        read_only: bool = False,
        patience: float = LOCK_PATIENCE,
    ) -> None:
        self.path = Path(path)
        self._header = json.loads(json.dumps({"identity": identity, "images": images}))
        self._chunks: dict[tuple[int, str, Stage], list[Chunk]] = {}
        self._file = None if read_only else self._lock(patience)
        data = self.path.read_bytes() if self.path.exists() else b""
        records = list(_records(data))
        foreign = records[0][0].get("identity") != self._header["identity"] if records else b"\n" in data
        if foreign:
            logger.warning("%s is not a ledger of these parameters: it is not used", self.path)
            records = []
        for record, _ in records[1:]:
            try:
                chunk = _decode(record)
            except ValueError as error:
                raise ValueError(f"{self.path}: {error}; delete it and run again") from error
            self._chunks.setdefault((chunk.image, chunk.pixels, chunk.stage), []).append(chunk)
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

    def _write(self, file: IO[bytes], *records: Mapping[str, Any]) -> None:
        """Write each record whole, or not at all as far as later readers can see."""
        lines = b"".join(map(_line, records))
        try:
            if os.write(file.fileno(), lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: samples could not be written", str(self.path)) from error

    def append(self, chunks: Iterable[Chunk]) -> None:
        """Write chunks to disk."""
        if self._file is None:
            raise ValueError(f"{self.path} was opened to be read only")
        self._write(self._file, *map(_encode, chunks))

    def close(self) -> None:
        """Let other processes have the file."""
        if self._file is not None:
            self._file.close()

    def chunks(self, number: int, pixels: str, stage: Stage) -> list[Chunk]:
        """Return the chunks of one image and stage that were on disk when the ledger was opened."""
        return self._chunks.get((number, pixels, stage), [])

    def all_chunks(self) -> list[Chunk]:
        """Return every chunk that was on disk when the ledger was opened."""
        return [chunk for chunks in self._chunks.values() for chunk in chunks]


def folder_name(identity: Mapping[str, Any]) -> str:
    """Return the name of a family's folder in the store."""
    return f"{identity['family']}-sigma{identity['sigma']}-{identity['hash']}"


def open_recorded(store: Path | str, identity: str) -> list[Ledger]:
    """Open all ledgers of the identity with this hash, to be read."""
    found = []
    for path in sorted(Path(store).glob(f"*-{identity}/*.jsonl")):
        header = read_header(path)
        if header is not None:
            found.append(Ledger(path, header["identity"], read_only=True))
    return found


class FamilyLedgers:
    """What a job reads of its family's ledgers, and the one that it writes.

    Ledgers are opened only as far as they are needed (`search`): first the job's own and its leader's, then others of
    the folder that list one of its images, then its own for writing.
    """

    def __init__(
        self,
        store: Path | str,
        identity: Mapping[str, Any],
        images: Iterable[Picture],
        variant: Variant,
        leader: Variant | None = None,
        *,
        reads_only: bool = False,
        patience: float = LOCK_PATIENCE,
    ) -> None:
        self.folder = Path(store) / folder_name(identity)
        self.identity, self.reads_only, self._patience = identity, reads_only, patience
        self._images = sorted((picture.number, picture.checksum) for picture in images)
        job = short_hash(self._images)
        self.path = self.folder / f"{job}-{variant.method}{variant.votes}.jsonl"
        self._likely = [self.path]
        if leader is not None and leader != variant:
            self._likely.append(self.folder / f"{job}-{leader.method}{leader.votes}.jsonl")
        self._levels = [self._open_likely, self._open_others, self._open_own]
        self._opened: dict[Path, Ledger] = {}

    def search(self, *, to_write: bool = True) -> bool:
        """Look further for samples; False where there is nowhere left to look, and what is missing must be drawn."""
        only_own_is_left = self._levels == [self._open_own]
        if not self._levels or (only_own_is_left and (self.reads_only or not to_write)):
            return False
        self._levels.pop(0)()
        return True

    def _open_likely(self) -> None:
        for path in self._likely:
            self._open(path)

    def _open_others(self) -> None:
        wanted = {tuple(image) for image in self._images}
        for path in sorted(self.folder.glob("*.jsonl")):
            header = None if path in self._opened else read_header(path)
            if header and wanted & {tuple(image) for image in header["images"]}:
                self._open(path)

    def _open(self, path: Path) -> None:
        if path.exists():
            self._opened[path] = Ledger(path, self.identity, read_only=True)

    def _open_own(self) -> None:
        self._opened[self.path] = Ledger(self.path, self.identity, self._images, patience=self._patience)

    def chunks(self, picture: Picture, stage: Stage) -> list[Chunk]:
        """Return what has been found of one image and stage, in the order of samples."""
        image = picture.number, picture.checksum
        found = [chunk for ledger in self._opened.values() for chunk in ledger.chunks(*image, stage)]
        return sorted(found, key=lambda chunk: chunk.first_sample)

    def on_record(self, pictures: Iterable[Picture], limits: Mapping[Stage, int]) -> int:
        """Return how many of the first samples of each stage the job's own ledger and its leader's hold."""
        self.search(to_write=False)
        found = 0
        for picture in pictures:
            for stage, limit in limits.items():
                ends = (chunk.first_sample + len(chunk) for chunk in self.chunks(picture, stage))
                found += min(limit, max(ends, default=0))
        return found

    def append(self, chunks: Iterable[Chunk]) -> None:
        """Write chunks to the job's own ledger, which `search` has opened for writing."""
        self._opened[self.path].append(chunks)

    def fix_cap(self, picture: Picture, cap: int) -> bool:
        """Tell whether ``cap``, the most estimation samples of an image, was fixed before the first was drawn.

        It is where it was written down in the family's folder before, or where no sample is on record yet: then it is
        written down now. Another cap, or samples of a run that had none, may have been looked at.
        """
        path = self.folder / "caps" / f"{picture.number}-{picture.checksum}"
        if not path.exists():
            while self.search(to_write=False):
                pass
            if self.chunks(picture, "estimation"):
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), path.open("x") as file:
                file.write(f"{cap}\n")
        return path.read_text() == f"{cap}\n"

    def close(self) -> None:
        """Let other processes have the file."""
        for ledger in self._opened.values():
            ledger.close()
