"""A GPU of its own for every job on a machine: Snakemake counts GPUs but doesn't say which one is whose.

Whoever holds the lock on a slot's file has the slot. The kernel releases a lock when its process ends, however it
ends, so there is no stale state. Inside a scheduler's job the locks are that job's own: what it was given is
shared out, and nothing else is touched.
"""

import fcntl
import logging
import os
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

_held: list[IO[str]] = []  # a lock lasts as long as its file is open


def has_gpu() -> bool:
    """Tell whether a driver shows a GPU; asking torch would cost every start of Snakemake seconds."""
    listers = (["nvidia-smi", "-L"], ["rocm-smi", "--showid"])
    return any(which(lister[0]) and "GPU" in _output_of(lister) for lister in listers)


def _output_of(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES wants them."""
    if VISIBLE in os.environ:
        return [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip() not in ("", "-1")]
    if which("nvidia-smi") is None:
        return []
    listed = _output_of(["nvidia-smi", "-L"]).splitlines()
    return [str(number) for number in range(sum(line.startswith("GPU ") for line in listed))]


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


def refuse_to_share_amd() -> None:
    """Let one job at a time use the GPUs of a machine that has AMD's: nothing here tells them apart."""
    if claim(["amd"], jobs_per_gpu=1, folder=lock_folder()) is None:
        raise RuntimeError(
            "another job is using this machine's GPU. AMD's GPUs can't be shared out among jobs here: run one job at a "
            "time (--resources gpu=1), or let a scheduler give each job a GPU of its own"
        )


def take_gpu(*, jobs_per_gpu: int = 1, pause: float = 5.0) -> str | None:
    """Make one GPU the only one that this process sees, until it ends; wait where all are taken.

    It must be called before torch first uses a GPU. Returns the GPU's name, or None where NVIDIA has none.
    """
    gpus = visible_gpus()
    if not gpus:
        return None
    waited = False
    while (gpu := claim(gpus, jobs_per_gpu=jobs_per_gpu, folder=lock_folder())) is None:
        if not waited:
            logger.warning("all of %d GPUs are taken: waiting for one (is --resources gpu=... too high?)", len(gpus))
            waited = True
        time.sleep(pause)
    os.environ[VISIBLE] = gpu
    logger.info("using GPU %s", gpu)
    return gpu
