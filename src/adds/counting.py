"""One certification job: the class counts of a shard of images for one method, sigma and number of votes."""

import hashlib
import json
import logging
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from adds.images import load_image
from adds.ledger import Ledger
from adds.sampling import Sampler

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SampleSize:
    """How many samples select the class, and how many estimate its probability."""

    n0: int
    n: int


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return a short name of everything that determines a prediction."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def open_ledger(folder: Path | str, shard: str, identity: Mapping[str, Any], *, read_only: bool = False) -> Ledger:
    """Open the shard's ledger; other parameters have files of their own, so that none is ever lost."""
    name = f"{identity['method']}-sigma{identity['sigma']}-votes{identity['votes']}"
    path = Path(folder) / name / f"{shard}-{identity_hash(identity)}.jsonl"
    return Ledger(path, identity, read_only=read_only)


def versions() -> str:
    """Say with what the counts were made."""
    packages = " ".join(f"{name} {version(name)}" for name in ("adds", "torch", "guided-diffusion-sdk"))
    return f"python {platform.python_version()} {packages}"


def device_name(device: torch.device) -> str:
    """Name the processor, for the record and for the runtime figure."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}"


def count_shard(
    sampler: Sampler,
    images: pd.DataFrame,
    *,
    image_size: int,
    size: SampleSize,
    ledger: Ledger,
    family: Ledger | None,
    identity: Mapping[str, Any],
) -> pd.DataFrame:
    """Draw the samples of every image of the shard and return a row of counts for each.

    Samples that the ``family``'s ledger holds are not drawn again: see `adds.ledger`.
    """
    rows = []
    device = sampler.pipeline.denoiser.device
    total = len(images) * (size.n0 + size.n)
    name = f"{sampler.method} sigma={sampler.sigma:g} votes={sampler.votes}"
    interval = 1 if sys.stderr.isatty() else 30
    with tqdm(total=total, desc=name, unit="sample", mininterval=interval) as bar:
        for position, row in enumerate(images.itertuples(index=False), start=1):
            image = load_image(row.file, size=image_size)
            tallies = {
                stage: sampler.count(
                    image,
                    index=row.index,
                    stage=stage,
                    n=n,
                    ledger=ledger,
                    family=family,
                    progress=bar.update,
                )
                for stage, n in size.items()
            }
            both = tallies.values()
            rows.append(
                {
                    "method": sampler.method,
                    "sigma": sampler.sigma,
                    "votes": sampler.votes,
                    "index": row.index,
                    "label": row.label,
                    "counts_selection": tallies["selection"].counts.tolist(),
                    "counts_estimation": tallies["estimation"].counts.tolist(),
                    "n0": tallies["selection"].drawn,
                    "n": tallies["estimation"].drawn,
                    "evaluations": sum(tally.evaluations for tally in both),
                    "seconds": sum(tally.seconds for tally in both),
                    "budget_share": max(tally.budget_share for tally in both),
                    "seed": sampler.seed,
                    "device": device_name(device),
                    "versions": versions(),
                    "identity": identity_hash(identity),
                }
            )
            logger.info(
                "image %d (%d of %d): true class %s has %.1f%% of %d samples, %.1f s",
                row.index,
                position,
                len(images),
                row.class_name,
                100 * tallies["estimation"].counts[row.label] / tallies["estimation"].drawn,
                tallies["estimation"].drawn,
                rows[-1]["seconds"],
            )
    return pd.DataFrame(rows)
