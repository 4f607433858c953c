"""Denoise a few images with every method, for the figure."""

import numpy as np
import pandas as pd
import torch

from adds.assets import claim_device, load_pipeline
from adds.listing import class_names
from adds.logs import configure_logging
from adds.naming import in_order
from adds.pictures import denoised_pictures, load_pictures


def main(snakemake) -> None:
    params, config = snakemake.params, snakemake.config
    size = config["diffusion"]["unet"]["image_size"]
    pipeline = load_pipeline(
        config,
        diffusion=snakemake.input.diffusion,
        classifier=snakemake.input.classifier,
        device=claim_device(config),
    )
    # One sample at a time is denoised: batches that are filled up with padding would be all but wasted.
    pipeline.denoiser.batches.size = pipeline.classifier.batches.size = 1
    pictures, drawn = denoised_pictures(
        pipeline,
        load_pictures(pd.read_csv(snakemake.input.images).head(params.images), size=size),
        in_order((method, 1) for method in params.methods),
        sigma=float(snakemake.wildcards.sigma),
        guidance_scale=params.scale,
        start=params.start,
        seed=params.seed,
        classes=class_names(config["dataset"]["name"]),
    )
    np.savez(
        snakemake.output[0],
        pictures=pictures,
        **{name: drawn[name].to_numpy(str) for name in drawn},
    )


if __name__ == "__main__":
    configure_logging(snakemake.log[0], f"denoise sigma={snakemake.wildcards.sigma}")
    torch.set_num_threads(snakemake.threads)
    main(snakemake)
