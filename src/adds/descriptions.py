"""What a file of weights is: its description beside it, which names it in a run's identity; needs no torch."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def sha256_of(path: Path | str) -> str:
    """Return the checksum that names a model in a run's identity."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_model(weights: Path | str, settings: Mapping[str, Any], description: Path | str) -> None:
    """Write what a weights file is beside it: its settings, its checksum, and the state that this describes."""
    text = json.dumps({**settings, "sha256": sha256_of(weights), "state": _state(weights)}, indent=2)
    Path(description).write_text(text + "\n")


def _state(path: Path | str) -> list[int]:
    """Return size and time of change of a file, or of what a link leads to."""
    found = Path(path).stat()
    return [found.st_size, found.st_mtime_ns]


def read_description(weights: Path | str, description: Path | str) -> dict[str, Any]:
    """Return what a weights file is, after checking that it is still the file that was described.

    Samples of a network that was replaced must never be counted with those of the one before.
    """
    stored: dict[str, Any] = json.loads(Path(description).read_text())
    if stored.pop("state", None) != _state(weights) and stored["sha256"] != sha256_of(weights):
        raise ValueError(
            f"{weights} is not the file that {description} describes any more: delete both and run again, so that "
            "what was sampled with the old one is not used"
        )
    return stored
