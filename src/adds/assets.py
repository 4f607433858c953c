"""From model files and the configuration to a pipeline that is ready to draw samples."""

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adds.classifiers import (
    BatchedClassifier,
    Classifier,
    TimmClassifier,
    TimmDescription,
    load_small_classifier,
)
from adds.compilation import VERSION, load_package
from adds.denoiser import Denoiser, Network, load_unet, load_weights
from adds.descriptions import read_description
from adds.gpus import take_gpu
from adds.methods.base import Pipeline
from adds.schedule import Schedule, evenly_spaced


def choose_device(name: str) -> torch.device:
    """Resolve ``auto`` to the GPU where there is one; refuse a GPU where there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(
            f"device is {name!r}, but this machine has no GPU that torch can use: set device to 'cpu'"
        )
    return torch.device(name)


def load_classifier(path: Path | str, settings: Mapping[str, Any], device: torch.device) -> Classifier:
    """Load the embedded experiment's network, or any timm model as its description beside the weights says."""
    if settings["kind"] == "small":
        return load_small_classifier(path, classes=settings["classes"]).to(device)
    description = TimmDescription.read(Path(path).with_suffix(".json"))
    half = bool(settings["half_precision"]) and device.type == "cuda"
    classifier = TimmClassifier(description, half=half)
    load_weights(classifier.network, path)
    return classifier.eval().requires_grad_(False).to(device)


def load_diffusion(
    weights: Path | str, settings: Mapping[str, Any], device: torch.device, compiled: Path | str | None = None
) -> Network:
    """Load the diffusion model, ``compiled`` where it was; half precision is for GPUs only."""
    half = bool(settings["half_precision"]) and device.type == "cuda"
    network = load_unet(weights, settings["unet"], device=device, half=half)
    if compiled is None:
        return network
    return load_package(network, compiled, facts=compiled_from(weights, settings, network), device=device)


def compiled_from(weights: Path | str, settings: Mapping[str, Any], network: nn.Module) -> dict[str, str]:
    """Say which network a compiled one is: its weights, its architecture and its precision."""
    description = read_description(weights, Path(weights).with_suffix(".json"))
    return {
        "weights": description["sha256"],
        "unet": json.dumps(settings["unet"], sort_keys=True),
        "precision": str(network.dtype),
        "version": str(VERSION),
    }


def claim_device(config: Mapping[str, Any]) -> torch.device:
    """Return the device that a configuration asks for; a GPU is this process's own until it ends."""
    if config["device"] != "cpu" and take_gpu(jobs_per_gpu=config["jobs_per_gpu"]) is not None:
        choose_device("cuda")  # a GPU that torch can't use is an error, not a reason to go on without
    return choose_device(config["device"])


def device_name(device: torch.device) -> str:
    """Name the processor, for the record and for the runtime figure."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}"


def load_pipeline(
    config: Mapping[str, Any],
    *,
    diffusion: Path | str,
    classifier: Path | str,
    device: torch.device,
    compiled: Path | str | None = None,
) -> Pipeline:
    """Load both networks as the sections ``diffusion`` and ``classifier`` of a configuration say."""
    settings = config["diffusion"]
    schedule = Schedule.named(settings["schedule"], settings["timesteps"])
    return Pipeline(
        denoiser=Denoiser(
            load_diffusion(diffusion, settings, device, compiled),
            schedule,
            batch_size=settings["batch_size"],
            device=device,
            timestep_scale=1000 / len(schedule) if settings["rescale_timesteps"] else 1.0,
        ),
        classifier=BatchedClassifier(
            load_classifier(classifier, config["classifier"], device),
            classes=config["classifier"]["classes"],
            batch_size=config["classifier"]["batch_size"],
        ),
        grid=schedule.respaced(evenly_spaced(settings["steps"], len(schedule))),
    )


def embedded_pipeline(folder: Path | str, *, compiled: bool = False) -> Pipeline:
    """Load the models that the embedded experiment left in ``folder``, as their descriptions say."""
    folder = Path(folder)
    models = ("diffusion", "classifier")
    return load_pipeline(
        {name: json.loads((folder / f"{name}.json").read_text()) for name in models},
        **{name: folder / f"{name}.pt" for name in models},
        device=torch.device("cpu"),
        compiled=folder / "compiled.pt2" if compiled else None,
    )
