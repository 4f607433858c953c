"""Denoise a few images with every method, for the figure."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from adds.data.images import Images, class_names
from adds.machine.devices import claim_device
from adds.machine.logs import configure_logging
from adds.models.pipeline import load_pipeline
from adds.sampling.closeups import denoised_pictures


def main(params: dict[str, Any], machine: dict[str, Any], inputs: Any, sigma: float, output: str) -> None:
    pipeline = load_pipeline(
        params["networks"],
        # One sample at a time is denoised: batches that are filled up with padding would be all but wasted.
        {"diffusion": 1, "classifier": 1},
        {"diffusion": Path(inputs.diffusion).parent, "classifier": Path(inputs.classifier).parent},
        device=torch.device(claim_device(machine).kind),
    )
    images = Images.read(inputs.images, inputs.pixels)
    pictures, rows = denoised_pictures(
        pipeline,
        images.part(0, params["images"]).of_different_classes(params["shown"]),
        params["methods"],
        sigma=sigma,
        guidance_scale=params["guidance_scale"],
        seed=params["seed"],
        classes=class_names(inputs.get("classes"), images.table),
    )
    np.savez(output, pictures=pictures, **{name: rows[name].to_numpy(str) for name in rows})


if __name__ == "__main__":
    configure_logging(snakemake.log[0], f"denoise sigma={snakemake.wildcards.sigma}")
    machine = snakemake.params.machine
    torch.set_num_threads(machine["threads"])
    main(
        snakemake.params.denoise,
        machine,
        snakemake.input,
        float(snakemake.wildcards.sigma),
        snakemake.output[0],
    )
