"""Which processor a job computes on; torch is imported only where there may be a GPU."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adds.machine.gpus import HIDDEN, VISIBLE, has_gpu, take_gpu, take_turns


@dataclass(frozen=True)
class Device:
    """A kind of device, as torch calls it, and the processor's name for the record."""

    kind: str
    name: str


def processor() -> str:
    """Return the CPU's name, where the system tells it: `platform` knows its architecture only."""
    try:
        known = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        known = []
    named = [line.partition(":")[2].strip() for line in known if line.startswith("model name")]
    return f"CPU {named[0] if named else platform.processor() or platform.machine()}"


CPU = Device("cpu", processor())


def _but_there_is_one() -> str:
    """Say why torch can't use a GPU that a driver shows, where one does."""
    if not has_gpu():
        return ""
    if os.environ.get(VISIBLE) == "":
        return f" ({HIDDEN})"
    from torch import version

    built = f"CUDA {version.cuda}" if version.cuda else f"ROCm {version.hip}" if version.hip else "CPUs"
    torch = f"torch {version.__version__} is built for {built}"
    return f" (a driver shows one, but {torch}: install a build for it, or a newer driver)"


def claim_device(machine: Mapping[str, Any]) -> Device:
    """Return the device that a configuration asks for; a GPU is this process's own until it ends.

    Where there is none it is refused: on a CPU, whoever didn't ask for it would wait for years.
    """
    if machine["device"] == "cpu":
        return CPU
    taken = take_gpu(jobs_per_gpu=machine["jobs_per_gpu"])
    import torch

    if not torch.cuda.is_available():
        raise ValueError(
            f"device is {machine['device']!r}, but this machine has no GPU that torch can use{_but_there_is_one()}: "
            "run this where there is one, or set device to 'cpu' if you mean it"
        )
    if taken is None:
        take_turns()
    return Device("cuda", torch.cuda.get_device_name())
