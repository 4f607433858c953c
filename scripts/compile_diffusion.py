"""Compile the diffusion model for this kind of processor, once for all certification jobs."""

import torch

from adds.assets import claim_device, compile_diffusion
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "compile_diffusion")
    torch.set_num_threads(snakemake.threads)
    config, output = snakemake.config, snakemake.output
    compile_diffusion(config["diffusion"], claim_device(config), output.package, output.description)
