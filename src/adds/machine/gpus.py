"""A GPU of its own for every job on a machine: Snakemake counts GPUs but doesn't say which one is whose.

Whoever holds the lock on a slot's file has the slot. The kernel releases a lock when its process ends, however it
ends, so there is no stale state. Inside a scheduler's job the locks are that job's own: what it was given is
shared out, and nothing else is touched.
"""

import fcntl
import logging
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import IO

logger = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
SCHEDULERS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID")
"""What cluster schedulers call their jobs in the environment."""

PAUSE = 5.0
"""Seconds between two looks for a free GPU."""

DEVICES = Path("/dev")

NAMELESS = (
    "this machine has no names for its GPUs (they are AMD's, or nvidia-smi is missing), so that jobs would share one. "
    "Run one job at a time (--resources gpu=1), or let a scheduler give each job a GPU of its own."
)
HIDDEN = f"{VISIBLE} is set to nothing, which hides this machine's GPUs: unset it, or name those that jobs may use."

_held: list[IO[str]] = []  # a lock lasts as long as its file is open


def has_gpu() -> bool:
    """Tell whether a driver shows a GPU; asking torch would cost every start of Snakemake seconds.

    In containers there may be a GPU's device and no program that lists it.
    """
    listers = (["nvidia-smi", "-L"], ["rocm-smi", "--showid"])
    listed = any(which(lister[0]) and "GPU" in _output_of(lister) for lister in listers)
    return listed or any(DEVICES.glob("nvidia[0-9]*"))


def _output_of(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES wants them.

    None where nothing names them: AMD's, or NVIDIA's without nvidia-smi. Of a GPU that is cut into instances (MIG) each
    is one.
    """
    if VISIBLE in os.environ:
        return [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip() not in ("", "-1")]
    if which("nvidia-smi") is None:
        return []
    found: list[list[str]] = []
    for line in _output_of(["nvidia-smi", "-L"]).splitlines():
        if line.startswith("GPU "):
            found.append([])
        elif instance := re.search(r"UUID: (MIG-[^)]+)", line):
            found[-1].append(instance[1])
    return [name for number, instances in enumerate(found) for name in instances or [str(number)]]


def no_names() -> str:
    """Say why there are no `visible_gpus`."""
    return HIDDEN if VISIBLE in os.environ else NAMELESS


def lock_folder() -> Path:
    """Return where the locks are: one folder per user and scheduler's job, on this machine's own disk."""
    job = next((os.environ[name] for name in SCHEDULERS if name in os.environ), "local")
    return Path(tempfile.gettempdir()) / f"adds-gpus-{os.getuid()}-{job}"


def claim(gpus: Sequence[str], *, jobs_per_gpu: int, folder: Path) -> str | None:
    """Take a free slot of one of the GPUs and return the GPU's name, or None where all are taken.

    Second slots are tried only when every GPU's first is taken, so that jobs spread over the GPUs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for slot in range(jobs_per_gpu):
        for gpu in gpus:
            file = (folder / f"{gpu.replace('/', '_')}.{slot}").open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                continue
            _held.append(file)
            return gpu
    return None


def take_gpu(*, jobs_per_gpu: int = 1) -> str | None:
    """Make one GPU the only one that this process sees, until it ends; wait where all are taken.

    It must be called before CUDA is asked for anything: it looks at what is visible once. Returns the GPU's name, or
    None where GPUs have no names.
    """
    gpus = visible_gpus()
    if not gpus:
        return None
    os.environ[VISIBLE] = gpu = _wait_for(gpus, jobs_per_gpu)
    logger.info("using GPU %s", gpu)
    return gpu


def take_turns() -> None:
    """Wait until no other job uses the GPUs of this machine, which has no names for them."""
    _wait_for(["nameless"], jobs_per_gpu=1)


def _wait_for(gpus: Sequence[str], jobs_per_gpu: int) -> str:
    waited = False
    while (gpu := claim(gpus, jobs_per_gpu=jobs_per_gpu, folder=lock_folder())) is None:
        if not waited:
            told = "another job uses the GPU" if len(gpus) == 1 else f"all of {len(gpus)} GPUs are taken"
            logger.warning("%s: waiting (is --resources gpu=... too high?)", told)
            waited = True
        time.sleep(PAUSE)
    return gpu
