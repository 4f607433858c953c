"""Test a network on clean images before anything is sampled with it, and stop where it can't be the right one."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import torch
from bootstrap import configure_logging

from adds.data.images import Images
from adds.machine.devices import claim_device
from adds.models.pipeline import load_pipeline
from adds.monitor.checkup import (
    CLASSIFIED,
    DENOISED,
    SIGMAS,
    Accuracy,
    Denoising,
    accuracy_on,
    denoising_of,
    record,
)

log = logging.getLogger("adds")


def main(params: dict[str, Any], limit: float | None, machine: dict[str, Any], inputs: Any, output: str) -> bool:
    network = params["network"]
    device = torch.device(claim_device(machine).kind)
    pipeline = load_pipeline(
        params["networks"], machine["batch_size"], {network: Path(inputs.weights).parent}, device=device
    )
    images = Images.read(inputs.images, inputs.pixels)
    found: list[Accuracy | Denoising] = []
    if network == "diffusion":
        pictures = list(images.part(0, DENOISED))
        found = [denoising_of(pipeline.denoiser, pictures, sigma) for sigma in SIGMAS]
    else:
        accuracy = accuracy_on(pipeline.classifier, list(images.part(0, CLASSIFIED)), device)
        found = [accuracy] if accuracy else []
    for one in found:
        log.info("%s", one)
    problem = next(filter(None, (one.problem(limit) for one in found)), None)
    if problem:
        log.error("%s", problem)
        return False
    Path(output).write_text(json.dumps({"limit": limit, "found": record(found)}, indent=2) + "\n")
    return True


if __name__ == "__main__":
    configure_logging(snakemake.log[0], f"check_models {snakemake.wildcards.network}")
    machine = snakemake.params.machine
    torch.set_num_threads(machine["threads"])
    passed = main(snakemake.params.check, snakemake.params.limit, machine, snakemake.input, snakemake.output[0])
    sys.exit(0 if passed else 1)
