"""From model files and the configuration to a pipeline that is ready to draw samples."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from adds.classifiers import (
    BatchedClassifier,
    Classifier,
    TimmClassifier,
    TimmDescription,
    load_small_classifier,
)
from adds.denoiser import Denoiser, load_unet, load_weights
from adds.fastpath import Compiled
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


def sha256_of(path: Path | str) -> str:
    """Return the checksum that names a model in a run's identity."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_model(weights: Path | str, settings: Mapping[str, Any], description: Path | str) -> None:
    """Write what a weights file is beside it: its settings, its checksum, and the state that this describes."""
    text = json.dumps({**settings, "sha256": sha256_of(weights), "state": _state(weights)}, indent=2)
    Path(description).write_text(text + "\n")


def _state(path: Path | str) -> list[int]:
    """Return size and time of change of a file, or of what a link leads to."""
    found = Path(path).stat()
    return [found.st_size, found.st_mtime_ns]


def read_description(weights: Path | str, description: Path | str) -> dict[str, Any]:
    """Return what a weights file is, after checking that it is still the file that was described.

    Samples of a network that was replaced must never be counted with those of the one before.
    """
    stored: dict[str, Any] = json.loads(Path(description).read_text())
    if stored.pop("state", None) != _state(weights) and stored["sha256"] != sha256_of(weights):
        raise ValueError(
            f"{weights} is not the file that {description} describes any more: delete both and run again, so that "
            "what was sampled with the old one is not used"
        )
    return stored


def load_classifier(path: Path | str, settings: Mapping[str, Any], device: torch.device) -> Classifier:
    """Load the embedded experiment's network, or any timm model as its description beside the weights says."""
    if settings["kind"] == "small":
        return load_small_classifier(path, classes=settings["classes"]).to(device)
    description = TimmDescription.read(Path(path).with_suffix(".json"))
    half = bool(settings["half_precision"]) and device.type == "cuda"
    classifier = TimmClassifier(description, half=half)
    load_weights(classifier.network, path)
    return classifier.eval().requires_grad_(False).to(device)


def load_pipeline(
    *,
    diffusion: Path | str,
    classifier: Path | str,
    diffusion_settings: Mapping[str, Any],
    classifier_settings: Mapping[str, Any],
    device: torch.device,
    many_evaluations: bool = False,
) -> Pipeline:
    """Load both networks; the settings are the sections of that name of the configuration.

    Compiling the diffusion model pays only where ``many_evaluations`` follow.
    """
    schedule = Schedule.named(diffusion_settings["schedule"], diffusion_settings["timesteps"])
    half = bool(diffusion_settings["half_precision"]) and device.type == "cuda"
    network = load_unet(diffusion, diffusion_settings["unet"], device=device, half=half)
    return Pipeline(
        denoiser=Denoiser(
            Compiled(network) if many_evaluations and diffusion_settings["compile"] else network,
            schedule,
            batch_size=diffusion_settings["batch_size"],
            device=device,
            timestep_scale=1000 / len(schedule) if diffusion_settings["rescale_timesteps"] else 1.0,
        ),
        classifier=BatchedClassifier(
            load_classifier(classifier, classifier_settings, device),
            classes=classifier_settings["classes"],
            batch_size=classifier_settings["batch_size"],
        ),
        grid=schedule.respaced(evenly_spaced(diffusion_settings["steps"], len(schedule))),
    )


def pipeline_of(
    config: Mapping[str, Any],
    *,
    diffusion: Path | str,
    classifier: Path | str,
    many_evaluations: bool = False,
) -> Pipeline:
    """Load both networks as a whole configuration says, on a GPU of this process's own."""
    if config["device"] != "cpu" and take_gpu(jobs_per_gpu=config["jobs_per_gpu"]) is not None:
        choose_device("cuda")  # a GPU that torch can't use is an error, not a reason to go on without
    return load_pipeline(
        diffusion=diffusion,
        classifier=classifier,
        diffusion_settings=config["diffusion"],
        classifier_settings=config["classifier"],
        device=choose_device(config["device"]),
        many_evaluations=many_evaluations,
    )


def embedded_pipeline(folder: Path | str) -> Pipeline:
    """Load the models that the embedded experiment left in ``folder``, as their descriptions say."""
    folder = Path(folder)
    return load_pipeline(
        diffusion=folder / "diffusion.pt",
        classifier=folder / "classifier.pt",
        diffusion_settings=json.loads((folder / "diffusion.json").read_text()),
        classifier_settings=json.loads((folder / "classifier.json").read_text()),
        device=torch.device("cpu"),
    )
