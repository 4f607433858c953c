"""What made a run's results: the code, the versions, the networks, the lists, the devices, the time."""

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from adds import __version__

PACKAGES = ("torch", "guided-diffusion-sdk", "numpy", "scipy", "pandas", "scikit-learn", "snakemake")


def commit(folder: Path) -> str | None:
    """Return the commit of the code in a folder, marked where files were changed since; None outside of git."""
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def provenance(certified: pd.DataFrame, models: Iterable[Path], lists: Iterable[Path]) -> dict[str, Any]:
    """Describe a run from its certificates, the descriptions of its models and the lists of its images."""
    described = {path.parent.name: json.loads(path.read_text())["sha256"] for path in models}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(Path(__file__).parent),
        "versions": {
            "python": platform.python_version(),
            "adds": __version__,
            **{name: version(name) for name in PACKAGES},
        },
        "models": described,
        "lists": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in lists},
        "identities": sorted(set(certified["identity"])),
        "devices": sorted(set(certified["device"])),
    }
