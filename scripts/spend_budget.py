"""Record how ADDS spends its privacy budget over the steps, for every sigma."""

import pandas as pd
import torch

from adds.assets import claim_device, load_pipeline
from adds.logs import configure_logging
from adds.pictures import budget_by_step, load_pictures


def main(snakemake) -> None:
    params, config = snakemake.params, snakemake.config
    pipeline = load_pipeline(
        config,
        diffusion=snakemake.input.diffusion,
        classifier=snakemake.input.classifier,
        device=claim_device(config),
    )
    size = config["diffusion"]["unet"]["image_size"]
    picture = load_pictures(pd.read_csv(snakemake.input.images).head(1), size=size)[0]
    tables = [
        budget_by_step(
            pipeline,
            picture,
            sigma=float(sigma),
            guidance_scale=scale,
            seed=params.seed,
            trajectories=params.trajectories,
        )
        for sigma, scale in params.scales.items()
    ]
    pd.concat(tables, ignore_index=True).to_csv(snakemake.output[0], index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "spend_budget")
    torch.set_num_threads(snakemake.threads)
    main(snakemake)
