"""From model files and the configuration to a pipeline that is ready to draw samples."""

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adds.classifiers import (
    BatchedClassifier,
    Classifier,
    TimmClassifier,
    TimmDescription,
    load_small_classifier,
)
from adds.compilation import VERSION, load_package, make_package
from adds.denoiser import Denoiser, Network, load_unet, load_weights, untrained_unet
from adds.gpus import take_gpu
from adds.memory import keep_freed_memory
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
    classifier = TimmClassifier(description, half=_half(settings, device))
    load_weights(classifier.network, path)
    return classifier.eval().requires_grad_(False).to(device)


def load_diffusion(
    weights: Path | str, settings: Mapping[str, Any], device: torch.device, compiled: Path | str | None = None
) -> Network:
    """Load the diffusion model, ``compiled`` where it was; half precision is for GPUs only."""
    network = load_unet(weights, settings["unet"], device=device, half=_half(settings, device))
    if compiled is None:
        return network
    return load_package(network, compiled, **compilable(settings, device))


def compile_diffusion(
    settings: Mapping[str, Any], device: torch.device, package: Path | str, description: Path | str
) -> None:
    """Compile the diffusion model of a configuration, whose weights need not be there yet."""
    network = untrained_unet(settings["unet"], device=device, half=_half(settings, device))
    make_package(network, package, description, **compilable(settings, device))


def compilable(settings: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Say what a diffusion model is to the compiler: its architecture, its precision, the shape of its states."""
    unet = settings["unet"]
    return {
        "facts": {
            "unet": json.dumps(unet, sort_keys=True),
            "precision": "float16" if _half(settings, device) else "float32",
            "version": str(VERSION),
        },
        "shape": (unet["in_channels"], unet["image_size"], unet["image_size"]),
        "device": device,
    }


def _half(settings: Mapping[str, Any], device: torch.device) -> bool:
    return bool(settings["half_precision"]) and device.type == "cuda"


def _no_diffusion_model(_x_t: Tensor, _timesteps: Tensor) -> Tensor:
    raise ValueError("this pipeline was loaded without a diffusion model: only RS can do without")


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
    diffusion: Path | str | None,
    classifier: Path | str,
    device: torch.device,
    compiled: Path | str | None = None,
) -> Pipeline:
    """Load both networks as the sections ``diffusion`` and ``classifier`` of a configuration say.

    RS needs no diffusion model. On a CPU the process keeps its freed memory from now on.
    """
    if device.type == "cpu":
        keep_freed_memory()
    settings = config["diffusion"]
    schedule = Schedule.named(settings["schedule"], settings["timesteps"])
    return Pipeline(
        denoiser=Denoiser(
            load_diffusion(diffusion, settings, device, compiled) if diffusion else _no_diffusion_model,
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
