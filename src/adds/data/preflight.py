"""What can be known of downloads before the first byte: whether there is room for them, and whether we are let in.

Standard library only, because Snakemake's own process asks before any job starts.
"""

import logging
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from pathlib import Path

logger = logging.getLogger(__name__)

USER_AGENT = "adds-workflow"
PATIENCE = 20
"""Seconds that an address may take to answer: one that is slow now may be well when its turn comes."""
FIRST_BYTES = 512
REFUSALS = (401, 403, 404, 410)
"""Answers that asking again won't change."""
NO_NETWORK = "where this machine has no network, run `snakemake fetch` on one that has, with the same --configfile"


class UnreachableError(OSError):
    """An address that can't be reached now."""


class NoDownloadError(RuntimeError):
    """A download that can't succeed; the message names the configuration's keys and what to do."""


@dataclass(frozen=True)
class Download:
    """A file to be downloaded: to where, from which addresses, for which ``key`` of the configuration.

    ``size`` is None where nobody said; ``hint`` says what to do without access.
    """

    key: str
    target: Path
    urls: Sequence[str]
    size: int | None
    hint: str

    @property
    def part(self) -> Path:
        """Where what has arrived is kept until it is whole."""
        return self.target.with_name(self.target.name + ".part")

    def missing(self, size: int | None) -> int:
        """Return how many bytes are still to come of a file of this size."""
        return max(0, (size or 0) - (self.part.stat().st_size if self.part.exists() else 0))


def check_downloads(downloads: Iterable[Download]) -> None:
    """Refuse downloads for which there is no room, all together, or no access; hardly anything is transferred."""
    downloads = list(downloads)
    check_space(downloads)
    told: list[int | None] = []
    unreachable, hints = [], []
    for download in downloads:
        try:
            told.append(check_access(download))
        except UnreachableError as error:
            told.append(None)
            unreachable.append(str(error))
            hints.append(download.hint)
    if unreachable:
        others = f", nor can {len(unreachable) - 1} other files" if len(unreachable) > 1 else ""
        help_ = " ".join(filter(None, dict.fromkeys(hints)))
        told_of = f"{unreachable[0]}{others}; the download will try several times; {NO_NETWORK}. {help_}"
        logger.warning("%s", told_of.strip())
    check_space(downloads, told)


def check_space(downloads: Sequence[Download], told: Sequence[int | None] = ()) -> None:
    """Refuse what doesn't fit on its disk. ``told`` are the servers' sizes, for files whose size isn't configured."""
    said = told or [None] * len(downloads)
    wanted = [
        (download, download.missing(download.size or size)) for download, size in zip(downloads, said, strict=True)
    ]
    folders = {download.key: _existing(download.target) for download in downloads}
    for disk in {folder.stat().st_dev for folder in folders.values()}:
        here = [(download, size) for download, size in wanted if folders[download.key].stat().st_dev == disk]
        free = shutil.disk_usage(folders[here[0][0].key]).free
        if sum(size for _, size in here) > free:
            files = " and ".join(f"{download.key} ({_gigabytes(size)})" for download, size in here)
            raise NoDownloadError(
                f"{os.path.commonpath([download.target.parent for download, _ in here])} has {_gigabytes(free)} free: "
                f"too little for what is to be downloaded, {files}. Free some space, or link that folder to a larger "
                f"disk. {' '.join(download.hint for download, _ in here)}".strip()
            )


def check_access(download: Download) -> int | None:
    """Ask the addresses for the first bytes; refuse where none of them will ever give the file.

    Returns the size that the first to answer tells, or None. An address that can't be reached now says so: it is no
    reason to stop, for the download tries it several times.
    """
    refusals = []
    for url in download.urls:
        request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT, "Range": f"bytes=0-{FIRST_BYTES - 1}"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                page, size = _is_page(response.read(FIRST_BYTES)), _size(response.status, response.headers)
        except urllib.error.HTTPError as error:
            if error.code not in REFUSALS:
                return None
            refusals.append(f"{url} answers {error.code} {error.reason}")
            continue
        except (OSError, HTTPException) as error:
            raise UnreachableError(f"{url} can't be reached now ({error})") from error
        if page:
            refusals.append(f"{url} answers with a web page, perhaps to log in")
        elif download.size is not None and size is not None and size != download.size:
            refusals.append(f"{url} has a file of {size:,} bytes instead of {download.size:,}")
        else:
            return size
    raise NoDownloadError(f"{download.key} can't be downloaded: {'; '.join(refusals)}. {download.hint}".strip())


def _is_page(start: bytes) -> bool:
    """Tell whether an answer is for people: no archive and no file of weights begins like that."""
    return start.lstrip().lower().startswith((b"<!doctype", b"<html"))


def _size(status: int, headers: Message) -> int | None:
    """Return how large the whole file is, by the headers of an answer with all or a part of it."""
    text = headers.get("Content-Range", "").rpartition("/")[2] if status == 206 else headers.get("Content-Length", "")
    return int(text) if text.isdigit() else None


def _existing(path: Path) -> Path:
    """Return the nearest folder above a path that is there."""
    return next(folder for folder in path.absolute().parents if folder.exists())


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
