"""Draw images that the diffusion model makes from nothing."""

from typing import Any

import numpy as np
import torch
from bootstrap import configure_logging

from adds.diffusion.schedule import from_model
from adds.machine.devices import claim_device
from adds.models.pipeline import load_denoiser
from adds.models.training import generate


def main(params: dict[str, Any], machine: dict[str, Any], weights: str, output: str) -> None:
    torch.set_num_threads(machine["threads"])
    settings, device = params["diffusion"], torch.device(claim_device(machine).kind)
    unet = settings["unet"]
    samples = generate(
        load_denoiser(weights, settings, machine["batch_size"]["diffusion"], device=device),
        steps=settings["steps"],
        count=params["samples"],
        shape=(unet["in_channels"], unet["image_size"], unet["image_size"]),
        seed=params["seed"],
    )
    np.save(output, from_model(samples).cpu().numpy())


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "draw_samples")
    main(snakemake.params.samples, snakemake.params.machine, snakemake.input[0], snakemake.output[0])
