"""Compile the diffusion model for this kind of processor, once for all certification jobs."""

import torch

from adds.machine.devices import claim_device
from adds.machine.logs import configure_logging
from adds.models.unet import compile_diffusion

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "compile_diffusion")
    machine, output = snakemake.params.machine, snakemake.output
    torch.set_num_threads(machine["threads"])
    device = torch.device(claim_device(machine).kind)
    compile_diffusion(snakemake.params.recipe, device, output.package, output.description)
