"""The embedded experiment's networks, for use from Python: what the workflow's jobs load, in one line."""

from pathlib import Path

import torch

from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule
from adds.machine.memory import keep_freed_memory
from adds.models.classifiers.small import load_small
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.models.unet import load_diffusion
from adds.models.weights import made_by

STEPS = 20
"""The paper's: 999, 949, ..., 49."""


def embedded_pipeline(
    folder: Path | str = "weights/digits", *, batch_size: int = 90, compiled: Path | None = None
) -> Pipeline:
    """Load both networks of the digits from a folder of published weights, on the CPU."""
    keep_freed_memory()
    folder, device = Path(folder), torch.device("cpu")
    weights = folder / "diffusion.safetensors"
    recipe = made_by(weights)
    schedule = Schedule.named(recipe["schedule"], recipe["timesteps"])
    network = load_diffusion(weights, {"unet": recipe["unet"], "half_precision": False}, device, compiled, batch_size)
    classes = made_by(folder / "classifier.safetensors")["classes"]
    classifier = load_small(folder / "classifier.safetensors", classes, device)
    return Pipeline(
        Denoiser(network, schedule, batch_size=batch_size, device=device),
        BatchedClassifier(classifier, classes=classes, batch_size=batch_size),
        schedule.evenly(STEPS),
    )
