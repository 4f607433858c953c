"""Compile the diffusion model for this kind of processor, once for all certification jobs, if that is asked for."""

from pathlib import Path
from typing import Any

from bootstrap import configure_logging

from adds.machine.devices import claim_device


def main(recipe: dict[str, Any], machine: dict[str, Any], folder: Path) -> None:
    if not machine["compile"]:
        return
    import torch

    from adds.models.unet import compile_diffusion

    torch.set_num_threads(machine["threads"])
    compile_diffusion(recipe, torch.device(claim_device(machine).kind), machine["batch_size"]["diffusion"], folder)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "compile_diffusion")
    main(snakemake.params.recipe, snakemake.params.machine, Path(snakemake.output[0]).parent)
