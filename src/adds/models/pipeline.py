"""What is ready to draw samples: both networks on a device, and the grid of timesteps that methods visit."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from adds.diffusion.batching import Batches
from adds.diffusion.checks import require
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Grid, Schedule
from adds.machine.devices import claim_device
from adds.machine.memory import keep_freed_memory
from adds.models.unet import load_diffusion
from adds.models.weights import WEIGHTS
from adds.registry import READERS, Network

Classifier = Callable[[Tensor], Tensor]
"""Maps images [n, C, H, W] in [-1, 1] to logits [n, classes]."""


class BatchedClassifier:
    """Predicts classes in batches (see `Batches`) of a size of its own."""

    def __init__(self, classifier: Classifier, *, classes: int, batch_size: int = 64) -> None:
        self.classifier = classifier
        self.classes = classes
        self.batches = Batches(batch_size)

    def predict(self, images: Tensor) -> Tensor:
        """Return the class of every image: int64 [n]."""
        return self.logits(images).argmax(dim=1)

    def probabilities(self, images: Tensor) -> Tensor:
        """Return the softmax of every image's logits: float32 [n, classes]."""
        return self.logits(images).softmax(dim=1)

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits of every image: float32 [n, classes]."""
        logits = self.batches.apply(lambda batch: self.classifier(batch).float(), images)
        if logits.shape != (len(images), self.classes):
            raise ValueError(
                f"the classifier gave logits of shape {tuple(logits.shape)} for {len(images)} images "
                f"and {self.classes} classes"
            )
        require(
            ~torch.isnan(logits),
            lambda: FloatingPointError("the classifier gave NaN logits: its weights are broken"),
        )
        return logits


@dataclass(frozen=True)
class Pipeline:
    """The networks, and the grid of timesteps that multi-step methods visit.

    ``readers`` are classifiers that were made for noise of one sigma, by name.
    """

    denoiser: Denoiser
    classifier: BatchedClassifier
    grid: Grid
    readers: Mapping[str, BatchedClassifier] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long its networks have taken in all."""
        return sum(batches.seconds for batches in self._batches)

    @property
    def padding(self) -> float:
        """Which share of that time went into padding."""
        wasted = sum(batches.seconds * batches.padding for batches in self._batches)
        return wasted / self.seconds if self.seconds else 0.0

    @property
    def _batches(self) -> list[Batches]:
        classifiers = [self.classifier, *self.readers.values()]
        return [self.denoiser.batches, *(classifier.batches for classifier in classifiers)]

    def reader(self, name: Network) -> BatchedClassifier:
        """Return a reader."""
        if name not in self.readers:
            raise ValueError(f"this pipeline was loaded without the reader {name!r}")
        return self.readers[name]


def _not_loaded(_images: Tensor, _timesteps: Tensor | None = None) -> Tensor:
    raise ValueError("this pipeline was loaded without that network, which the method's record doesn't list")


class ClassifierKind(Protocol):
    """What a module of a kind of classifier provides."""

    def obtain(self, order: Mapping[str, Any], folder: Path) -> None:
        """Leave weights and description in the folder, as the configuration's ``order`` says."""

    def load(self, folder: Path, settings: Mapping[str, Any], device: torch.device) -> Classifier:
        """Load what `obtain` left."""

    # A kind whose architecture is known before its weights are had has ``untrained(settings)``, and a network that can
    # compute in half precision says by its attribute ``half_precision`` whether it does.


def classifier_kind(name: str) -> ClassifierKind:
    """Return the module of a kind of classifier."""
    return cast("ClassifierKind", importlib.import_module(f"adds.models.classifiers.{name}"))


def untrained_classifier(settings: Mapping[str, Any]) -> nn.Module | None:
    """Return a classifier without its weights; None where its architecture is unknown until then."""
    untrained = getattr(classifier_kind(settings["kind"]), "untrained", None)
    network: nn.Module | None = untrained(settings) if untrained else None
    return network


def load_denoiser(
    weights: Path | str | None,
    settings: Mapping[str, Any],
    batch_size: int,
    *,
    device: torch.device,
    compiled: Path | None = None,
) -> Denoiser:
    """Load a diffusion model as its section says; without ``weights`` one that knows its schedule only."""
    return Denoiser(
        load_diffusion(weights, settings, device, compiled, batch_size) if weights else _not_loaded,
        Schedule.named(settings["schedule"], settings["timesteps"]),
        batch_size=batch_size,
        device=device,
        rescale_timesteps=settings["rescale_timesteps"],
    )


def load_pipeline(
    networks: Mapping[str, Any],
    batch_size: Mapping[str, int],
    folders: Mapping[str, Path],
    *,
    device: torch.device,
    compiled: Path | None = None,
) -> Pipeline:
    """Load the networks that have a folder, as their sections of ``networks`` say; methods don't need all of them.

    On a CPU the process keeps its freed memory from now on.
    """
    if device.type == "cpu":
        keep_freed_memory()
    settings = networks["diffusion"]
    weights = folders["diffusion"] / WEIGHTS if "diffusion" in folders else None
    denoiser = load_denoiser(weights, settings, batch_size["diffusion"], device=device, compiled=compiled)

    def classifier(name: str) -> BatchedClassifier:
        known = networks[name]
        load = classifier_kind(known["kind"]).load
        network = load(folders[name], known, device) if name in folders else _not_loaded
        return BatchedClassifier(network, classes=known["classes"], batch_size=batch_size["classifier"])

    return Pipeline(
        denoiser=denoiser,
        classifier=classifier("classifier"),
        grid=denoiser.schedule.evenly(settings["steps"]),
        readers={name: classifier(name) for name in READERS if name in folders},
    )


def load_for_job(
    networks: Mapping[str, Any],
    machine: Mapping[str, Any],
    *,
    diffusion: str,
    classifier: str,
    batch_size: int | None = None,
    compiled: str | None = None,
) -> Pipeline:
    """Load both networks from the files of their weights, on the device and with the threads that a job has.

    Batches are of the configuration's size, or all of another: those that are filled up with padding would be wasted.
    ``compiled`` is a file beside what was compiled, where there is any.
    """
    torch.set_num_threads(machine["threads"])
    return load_pipeline(
        networks,
        dict.fromkeys(("diffusion", "classifier"), batch_size) if batch_size else machine["batch_size"],
        {"diffusion": Path(diffusion).parent, "classifier": Path(classifier).parent},
        device=torch.device(claim_device(machine).kind),
        compiled=Path(compiled).parent if compiled and machine["compile"] else None,
    )
