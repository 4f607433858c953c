"""Downloads that survive a broken connection, and never leave a broken file under a good name."""

import hashlib
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

from adds.data.preflight import NO_NETWORK, REFUSALS, USER_AGENT, Download, NoDownloadError, check_space
from adds.machine.logs import progress_bar

logger = logging.getLogger(__name__)

BLOCK = 1 << 20
TIMEOUT = 60
MOST_UNANSWERED = 3
"""How often it is tried, or each address once where there are more, if none answers: there is no network then."""
MOST_WRONG = 2
"""How often an address may give a whole file with the wrong checksum before it is given up."""


@dataclass(frozen=True)
class Expected:
    """What a file must be: its size in bytes and a checksum, as ``sha256`` or ``md5`` and hexadecimal digits.

    None stands for what isn't known: then the server's own word for the size must do.
    """

    size: int | None = None
    algorithm: str = "sha256"
    digest: str | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Expected":
        """Build it from a ``download`` section of the configuration."""
        algorithm = "sha256" if settings.get("sha256") else "md5"
        return cls(settings.get("size"), algorithm, settings.get(algorithm))

    def problem(self, path: Path) -> str | None:
        """Say what is wrong with a file, or None."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"{path} has {size:,} bytes instead of {self.size:,}"
        if self.digest is None:
            return None
        with path.open("rb") as file:
            found = hashlib.file_digest(file, self.algorithm).hexdigest()
        if found != self.digest:
            return f"{path} has {self.algorithm} {found} instead of {self.digest}"
        return None


def fetch(
    urls: Sequence[str],
    target: Path | str,
    expected: Expected,
    *,
    attempts: int = 8,
    pause: float = 2.0,
    hint: str = "",
) -> None:
    """Download a file from the first address that gives it whole; ``hint`` says what to do without access.

    What has arrived is kept in ``target.part`` and continued, by this call or a later one. Only a file of the
    expected size and checksum is renamed to ``target``. An address that refuses is not asked again.
    """
    if not urls:
        raise ValueError(f"no address to download {target} from")
    target = Path(target)
    wanted = Download(target.name, target, urls, expected.size, hint)
    check_space([wanted])
    target.parent.mkdir(parents=True, exist_ok=True)
    part = wanted.part
    failures: list[str] = []
    wrong = dict.fromkeys(urls, 0)
    never_answered = True
    for attempt in range(attempts):
        url = list(wrong)[attempt % len(wrong)]
        if min(wrong.values()) >= MOST_WRONG:
            break
        try:
            size = _continue(url, part, expected.size)
            never_answered = False
            problem = replace(expected, size=size).problem(part)
            if problem is None:
                part.replace(target)
                return
            if size is not None and part.stat().st_size >= size:
                part.unlink()  # whole but wrong: continuing it would not make it right
                wrong[url] += 1
            failures.append(f"{url}: {problem}")
        except urllib.error.HTTPError as error:
            never_answered = False
            failures.append(f"{url} answers {error.code} {error.reason}")
            if error.code in REFUSALS:
                del wrong[url]
                if not wrong:
                    raise NoDownloadError(f"{'; '.join(failures[-3:])}. {hint}".strip()) from error
                continue
        except (OSError, HTTPException) as error:
            failures.append(f"{url}: {error}")
        logger.warning("attempt %d of %d: %s", attempt + 1, attempts, failures[-1])
        if never_answered and attempt + 1 == max(MOST_UNANSWERED, len(urls)):
            break
        if attempt + 1 < attempts and not wrong[url]:
            time.sleep(min(60.0, pause * 2**attempt))
    remedy = f"{NO_NETWORK[0].upper()}{NO_NETWORK[1:]}. " if never_answered and not part.exists() else ""
    raise RuntimeError(f"{target} could not be downloaded: {'; '.join(failures[-3:])}. {remedy}{hint}".strip())


def _continue(url: str, part: Path, size: int | None) -> int | None:
    """Append to ``part`` what is missing of the file at ``url``; start anew where the server can't continue.

    Returns the size that the file must have: ``size``, or else what the server says.
    """
    have = part.stat().st_size if part.exists() else 0
    if size is not None and have >= size:
        return size
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        continued = response.status == 206
        if size is None and response.length is not None:
            size = response.length + (have if continued else 0)
        begun = have if continued else 0
        with (
            part.open("ab" if continued else "wb") as file,
            progress_bar(total=size, initial=begun, desc=part.stem, unit="B", unit_scale=True) as bar,
        ):
            while block := response.read(BLOCK):
                file.write(block)
                bar.update(len(block))
    return size


def use_local(source: Path | str, target: Path | str, expected: Expected) -> None:
    """Use a local copy where it is: verify it and link to it, by a relative path where it was given as one."""
    source, target = Path(source), Path(target)
    if not source.is_file():
        raise FileNotFoundError(f"{source} doesn't exist")
    problem = expected.problem(source)
    if problem is not None:
        raise ValueError(f"{problem}: it is not the file that this experiment needs")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(source if source.is_absolute() else os.path.relpath(source.resolve(), target.parent.resolve()))
