"""Draw images that the diffusion model makes from nothing."""

from typing import Any

import numpy as np
import torch
from bootstrap import configure_logging

from adds.diffusion.schedule import Schedule, from_model
from adds.machine.devices import claim_device
from adds.models.training import generate
from adds.models.unet import load_diffusion


def main(params: dict[str, Any], weights: str, device: torch.device, output: str) -> None:
    settings = params["diffusion"]
    unet = settings["unet"]
    samples = generate(
        load_diffusion(weights, settings, device),
        Schedule.named(settings["schedule"], settings["timesteps"]),
        steps=settings["steps"],
        count=params["samples"],
        shape=(unet["in_channels"], unet["image_size"], unet["image_size"]),
        seed=params["seed"],
        device=device,
    )
    np.save(output, from_model(samples).cpu().numpy())


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "draw_samples")
    machine = snakemake.params.machine
    torch.set_num_threads(machine["threads"])
    device = torch.device(claim_device(machine).kind)
    main(snakemake.params.samples, snakemake.input[0], device, snakemake.output[0])
