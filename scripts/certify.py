"""One certification job: draw the samples of a shard of images and write their class counts."""

import time

STARTED = time.perf_counter()  # before the imports, which are a part of the job

from bootstrap import configure_logging

from adds.machine.logs import stop_on_signals, telling_when_stopped

if __name__ == "__main__":  # imports take a second in which Ctrl-C may come, too
    stop_on_signals()

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

import adds
from adds.data.images import Images
from adds.machine.devices import Device, claim_device
from adds.models.weights import checksums
from adds.registry import METHODS, Variant
from adds.sampling.counting import Counter, Request, refuse_to_draw
from adds.sampling.job import run_job, whole_identity
from adds.sampling.ledger import Chunk, FamilyLedgers
from adds.sampling.stopping import SampleSize

if TYPE_CHECKING:
    from adds.sampling.sampler import Sampler

logger = logging.getLogger("adds.certify")


def load_sampler(
    job: dict[str, Any], machine: dict[str, Any], folders: dict[str, Path], compiled: Path | None, device: str
) -> "Sampler":
    """Load the networks."""
    import torch

    from adds.models.pipeline import load_pipeline
    from adds.sampling.sampler import Sampler

    torch.set_num_threads(machine["threads"])
    pipeline = load_pipeline(
        job["networks"],
        machine["batch_size"],
        folders,
        device=torch.device(device),
        compiled=compiled,
    )
    identity = job["identity"]
    return Sampler(
        job["method"],
        pipeline,
        identity["sigma"],
        job["votes"],
        guidance_scale=identity.get("guidance_scale", 0.0),
        seed=identity["seed"],
        options=job["options"],
        readers=job["readers"],
    )


class LazySampler:
    """Draws with networks that are loaded on first use: they aren't needed where every sample is on record."""

    def __init__(self, load: Callable[[], "Sampler"]) -> None:
        self._load = load
        self.sampler: Sampler | None = None

    def __call__(self, requests: Sequence[Request], /) -> list[Chunk]:
        """Draw, as `adds.sampling.counting.Draw` says."""
        self.sampler = self.sampler or self._load()
        return self.sampler.draw(requests)


def leaders_device(counts: str) -> Device:
    """Return the device that a leader's samples were drawn on: whoever reads them can't have another."""
    row = pd.read_parquet(counts, columns=["device_kind", "device"]).iloc[0]
    return Device(row["device_kind"], row["device"])


def tell_times(sampler: "Sampler") -> None:
    """Log which part of the job's time the networks took."""
    inside, total = sampler.pipeline.seconds, time.perf_counter() - STARTED
    logger.info(
        "networks took %.1f of the job's %.1f s: %.0f%% went elsewhere; %.1f%% of their work was padding",
        inside,
        total,
        100 * (1 - inside / total),
        100 * sampler.pipeline.padding,
    )


def check_code(code: dict[str, str]) -> None:
    """Refuse to draw under the identity of other code than this, as where files were changed in the middle of a run."""
    here = {name: METHODS[name].counts for name in code if name in METHODS}
    if here != code:
        raise RuntimeError(
            f"the library {adds.__file__} is not the one that this run was begun with: its methods have other "
            "checksums. Start Snakemake again"
        )


def main(job: dict[str, Any], machine: dict[str, Any], inputs: Any, output: str) -> None:
    check_code(job["identity"]["code"])
    device = leaders_device(inputs.leader) if job["reads_only"] else claim_device(machine)
    folders = {name: Path(inputs[name]).parent for name in job["networks"] if inputs.get(name)}
    models = {name: checksums(folder) for name, folder in folders.items()}
    identity = whole_identity(job["identity"], models, device.kind)
    compiled = Path(inputs.compiled).parent if machine["compile"] and "diffusion" in folders else None
    lazy = LazySampler(lambda: load_sampler(job, machine, folders, compiled, device.kind))
    reads_only, variant = job["reads_only"], Variant(job["method"], job["votes"])
    images = Images.read(inputs.images, inputs.pixels).part(*job["positions"])
    counts = run_job(
        Counter(variant, job["networks"]["classifier"]["classes"], machine["chunk_size"]),
        images,
        refuse_to_draw if reads_only else lazy,
        at_once=machine["at_once"],
        size=SampleSize.from_settings(job["sampling"]),
        ledgers=FamilyLedgers(
            job["ledgers"], identity, images, variant, Variant(*job["leader"]), reads_only=reads_only
        ),
        identity=identity,
        device=device,
    )
    counts.to_parquet(output, index=False)
    if lazy.sampler is not None:
        tell_times(lazy.sampler)


if __name__ == "__main__":
    configure_logging(
        snakemake.log[0],
        "certify {method} sigma={sigma} votes={votes} shard={shard}".format(**snakemake.wildcards),
    )
    with telling_when_stopped():
        main(snakemake.params.job, snakemake.params.machine, snakemake.input, snakemake.output.counts)
