"""Measure how sharp denoised images are, and how far from the original."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from adds.data.images import Images
from adds.machine.devices import claim_device
from adds.machine.logs import configure_logging
from adds.models.pipeline import load_pipeline
from adds.sampling.closeups import detail_of


def main(params: dict[str, Any], machine: dict[str, Any], inputs: Any, output: str) -> None:
    pipeline = load_pipeline(
        params["networks"],
        {"diffusion": params["samples"], "classifier": 1},  # an image's samples are a batch; nothing is classified
        {"diffusion": Path(inputs.diffusion).parent, "classifier": Path(inputs.classifier).parent},
        device=torch.device(claim_device(machine).kind),
    )
    images = Images.read(inputs.images, inputs.pixels).part(0, params["images"])
    parts = [
        detail_of(
            pipeline,
            images,
            params["methods"],
            sigma=float(sigma),
            guidance_scale=scale,
            seed=params["seed"],
            samples=params["samples"],
        )
        for sigma, scale in params["scales"].items()
    ]
    pd.concat(parts, ignore_index=True).to_parquet(output, index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "detail")
    machine = snakemake.params.machine
    torch.set_num_threads(machine["threads"])
    main(snakemake.params.detail, machine, snakemake.input, snakemake.output[0])
