"""One certification job: draw the samples of a shard of images and write their class counts."""

import time

STARTED = time.perf_counter()  # before the imports, which are a part of the job

import logging

import pandas as pd
import torch

from adds.assets import pipeline_of, read_description
from adds.counting import count_shard, family_ledgers, ledger_path
from adds.ledger import Ledger
from adds.logs import configure_logging, exit_when_terminated
from adds.naming import STEPPING
from adds.sampling import Sampler
from adds.stopping import SampleSize

logger = logging.getLogger("adds.certify")


def main(snakemake) -> None:
    params, config = snakemake.params, snakemake.config
    models = {
        name: read_description(snakemake.input[name], snakemake.input[f"{name}_description"])
        for name in ("diffusion", "classifier")
    }
    pipeline = pipeline_of(
        config,
        diffusion=snakemake.input.diffusion,
        classifier=snakemake.input.classifier,
        many_evaluations=params.identity["method"] in STEPPING,
    )
    # Half precision is used on GPUs only, so samples of both kinds of device are kept apart.
    identity = {**params.identity, "models": models, "device": pipeline.denoiser.device.type}
    own = {key: identity[key] for key in ("guidance_scale", "start") if key in identity}
    sampler = Sampler(
        method=identity["method"],
        pipeline=pipeline,
        sigma=identity["sigma"],
        votes=identity["votes"],
        seed=identity["seed"],
        chunk_size=config["sampling"]["chunk_size"],
        keep_oneshot=identity["method"] == "adds" and bool(config["methods"].get("adds_oneshot")),
        **own,
    )
    shard = snakemake.wildcards.shard
    first, end = params.positions
    counts = count_shard(
        sampler,
        pd.read_csv(snakemake.input.images).iloc[first:end],
        image_size=config["diffusion"]["unet"]["image_size"],
        size=SampleSize.from_settings(params.sampling),
        ledger=Ledger(ledger_path(params.ledgers, shard, identity), identity),
        family=family_ledgers(params.ledgers, shard, identity),
        identity=identity,
    )
    counts.to_parquet(snakemake.output.counts, index=False)
    if pipeline.denoiser.device.type == "cpu":
        networks = pipeline.denoiser.batches.seconds + pipeline.classifier.batches.seconds
        total = time.perf_counter() - STARTED
        share = 100 * (1 - networks / total)
        logger.info("networks took %.1f of the job's %.1f s: %.0f%% went elsewhere", networks, total, share)


if __name__ == "__main__":
    configure_logging(
        snakemake.log[0],
        "certify {method} sigma={sigma} votes={votes} shard={shard}".format(**snakemake.wildcards),
    )
    exit_when_terminated("samples up to the last chunk are on disk; the job goes on from there when it runs again")
    torch.set_num_threads(snakemake.threads)
    main(snakemake)
