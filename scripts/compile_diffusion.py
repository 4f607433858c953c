"""Compile the diffusion model for this kind of processor, once for all certification jobs."""

import torch

from adds.assets import claim_device, compiled_from, load_diffusion
from adds.compilation import make_package
from adds.logs import configure_logging


def main(weights: str, output, config: dict) -> None:
    device, settings = claim_device(config), config["diffusion"]
    network = load_diffusion(weights, settings, device)
    size = settings["unet"]["image_size"]
    make_package(
        network,
        output.package,
        output.description,
        facts=compiled_from(weights, settings, network),
        shape=(settings["unet"]["in_channels"], size, size),
        device=device,
    )


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "compile_diffusion")
    torch.set_num_threads(snakemake.threads)
    main(snakemake.input.weights, snakemake.output, snakemake.config)
