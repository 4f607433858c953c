"""One certification job: draw the samples of a shard of images and write their class counts."""

import time

STARTED = time.perf_counter()  # before the imports, which are a part of the job

import logging
import platform
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pandas as pd

from adds.counting import count_shard, family_ledgers, ledger_path
from adds.descriptions import read_description
from adds.ledger import Chunk, Ledger
from adds.logs import configure_logging, exit_when_terminated
from adds.stopping import SampleSize
from adds.tally import Counter

if TYPE_CHECKING:
    from adds.sampling import Sampler

logger = logging.getLogger("adds.certify")

SETTING = ("method", "sigma", "votes", "seed")


def device_of(config: dict) -> tuple[str, str]:
    """Return the kind of device and its name; torch is imported only where there may be a GPU."""
    if config["device"] == "cpu":
        return "cpu", f"cpu {platform.machine()}"
    from adds.assets import claim_device, device_name

    device = claim_device(config)
    return device.type, device_name(device)


def sampler_loader(snakemake, identity: dict) -> Callable[[], "Sampler"]:
    """Return what loads the networks on first use: they aren't needed where every sample is on record."""

    @cache
    def load() -> "Sampler":
        import torch

        from adds.assets import load_pipeline
        from adds.sampling import Sampler

        torch.set_num_threads(snakemake.threads)
        config = snakemake.config
        pipeline = load_pipeline(
            config,
            diffusion=snakemake.input.get("diffusion"),
            classifier=snakemake.input.classifier,
            device=torch.device(identity["device"]),
            compiled=snakemake.input.get("compiled"),
        )
        return Sampler(
            **{key: identity[key] for key in (*SETTING, "guidance_scale", "start") if key in identity},
            pipeline=pipeline,
            keep_oneshot=identity["method"] == "adds" and bool(config["methods"].get("adds_oneshot")),
        )

    return load


def tell_times(sampler: "Sampler") -> None:
    """Log which part of the job's time the networks took, where that can be told."""
    networks = (sampler.pipeline.denoiser, sampler.pipeline.classifier)
    if sampler.pipeline.denoiser.device.type != "cpu":
        return
    inside, total = sum(network.batches.seconds for network in networks), time.perf_counter() - STARTED
    logger.info(
        "networks took %.1f of the job's %.1f s: %.0f%% went elsewhere; %.1f%% of their work was padding",
        inside,
        total,
        100 * (1 - inside / total),
        100 * sampler.pipeline.denoiser.batches.padding,
    )


def main(snakemake) -> None:
    params, config = snakemake.params, snakemake.config
    models = {
        name: read_description(snakemake.input[name], snakemake.input[f"{name}_description"])
        for name in ("diffusion", "classifier")
        if snakemake.input.get(name)
    }
    # Half precision is used on GPUs only, so samples of both kinds of device are kept apart.
    kind, device = device_of(config)
    identity = {**params.identity, "models": models, "device": kind}
    load = sampler_loader(snakemake, identity)

    def draw(image, **which) -> Chunk:
        return load().draw(image, **which)

    shard = snakemake.wildcards.shard
    first, end = params.positions
    counts = count_shard(
        Counter(
            **{key: identity[key] for key in SETTING},
            classes=config["classifier"]["classes"],
            chunk_size=config["sampling"]["chunk_size"],
            draw=draw,
        ),
        pd.read_csv(snakemake.input.images).iloc[first:end],
        image_size=config["diffusion"]["unet"]["image_size"],
        size=SampleSize.from_settings(params.sampling),
        ledger=Ledger(ledger_path(params.ledgers, shard, identity), identity),
        family=family_ledgers(params.ledgers, shard, identity),
        identity=identity,
        device=device,
    )
    counts.to_parquet(snakemake.output.counts, index=False)
    if load.cache_info().currsize:
        tell_times(load())


if __name__ == "__main__":
    configure_logging(
        snakemake.log[0],
        "certify {method} sigma={sigma} votes={votes} shard={shard}".format(**snakemake.wildcards),
    )
    exit_when_terminated("samples up to the last chunk are on disk; the job goes on from there when it runs again")
    main(snakemake)
