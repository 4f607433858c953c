"""One certification job: the class counts of a shard of images for one method, sigma and number of votes.

Needs no torch: see `adds.tally`.
"""

import hashlib
import json
import logging
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from adds.images import load_image
from adds.ledger import Ledger, read_identity
from adds.naming import CONTAINED
from adds.stopping import SampleSize
from adds.tally import Counter

logger = logging.getLogger(__name__)


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return a short name of everything that determines a prediction."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ledger_path(folder: Path | str, shard: str, identity: Mapping[str, Any]) -> Path:
    """Return where a shard's ledger is; other parameters have files of their own, so that none is ever lost."""
    name = f"{identity['method']}-sigma{identity['sigma']}-votes{identity['votes']}"
    return Path(folder) / name / f"{shard}-{identity_hash(identity)}.jsonl"


def family_ledgers(folder: Path | str, shard: str, identity: Mapping[str, Any]) -> list[Ledger]:
    """Open the ledgers of the same parameters that hold this method's predictions: see `adds.ledger`."""
    found = []
    for method in filter(None, (identity["method"], CONTAINED.get(identity["method"]))):
        for path in sorted(Path(folder).glob(f"{method}-sigma{identity['sigma']}-votes*/{shard}-*.jsonl")):
            other = read_identity(path)
            if other is None or path == ledger_path(folder, shard, identity):
                continue
            own = {**identity, "method": method, "votes": other["votes"]}
            if other == json.loads(json.dumps(own)):
                found.append(Ledger(path, other, read_only=True))
    return found


def versions() -> str:
    """Say with what the counts were made."""
    packages = " ".join(f"{name} {version(name)}" for name in ("adds", "torch", "guided-diffusion-sdk"))
    return f"python {platform.python_version()} {packages}"


def count_shard(
    counter: Counter,
    images: pd.DataFrame,
    *,
    image_size: int,
    size: SampleSize,
    ledger: Ledger,
    family: Sequence[Ledger],
    identity: Mapping[str, Any],
    device: str,
) -> pd.DataFrame:
    """Draw the samples of every image of the shard and return a row of counts for each.

    Samples that the ``family``'s ledgers hold are not drawn again: see `adds.ledger`. ``device`` names the
    processor, for the record.
    """
    rows = []
    total = len(images) * (size.n0 + size.n)
    name = f"{counter.method} sigma={counter.sigma:g} votes={counter.votes}"
    interval = 1 if sys.stderr.isatty() else 30
    with tqdm(total=total, desc=name, unit="sample", mininterval=interval) as bar:
        for position, row in enumerate(images.itertuples(index=False), start=1):
            image = load_image(row.file, size=image_size)
            sources = {"ledger": ledger, "family": family, "progress": bar.update}
            selection = counter.count(
                image,
                index=row.index,
                stage="selection",
                limit=size.n0,
                rule=size.selection_rule(),
                **sources,
            )
            prediction = int(selection.counts.argmax())
            estimation = counter.count(
                image,
                index=row.index,
                stage="estimation",
                limit=size.n,
                rule=size.estimation_rule(prediction, counter.sigma),
                **sources,
            )
            bar.total -= size.n0 + size.n - selection.drawn - estimation.drawn
            rows.append(
                {
                    "method": counter.method,
                    "sigma": counter.sigma,
                    "votes": counter.votes,
                    "index": row.index,
                    "label": row.label,
                    "counts_selection": selection.counts.tolist(),
                    "counts_estimation": estimation.counts.tolist(),
                    "n0": selection.drawn,
                    "n": estimation.drawn,
                    "stopped": estimation.stopped,
                    "evaluations": selection.evaluations + estimation.evaluations,
                    "seconds": selection.seconds + estimation.seconds,
                    "budget_share": max(selection.budget_share, estimation.budget_share),
                    "seed": counter.seed,
                    "device": device,
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
                100 * estimation.counts[row.label] / estimation.drawn,
                estimation.drawn,
                rows[-1]["seconds"],
            )
    return pd.DataFrame(rows)
