"""Classifiers: anything that maps images in [-1, 1] to logits."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adds.batching import Batches
from adds.denoiser import load_weights

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
        logits = self.batches.apply(lambda batch: self.classifier(batch).float(), images)
        if logits.shape != (len(images), self.classes):
            raise ValueError(
                f"the classifier gave logits of shape {tuple(logits.shape)} for {len(images)} images "
                f"and {self.classes} classes"
            )
        if bool(torch.isnan(logits).any()):
            raise FloatingPointError("the classifier gave NaN logits: its weights are broken")
        return logits.argmax(dim=1)


class SmallClassifier(nn.Module):
    """The embedded experiment's classifier of 8 x 8 grey images: two convolutions and two linear layers."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 32, 3, padding=1, stride=2),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 128),
            nn.ReLU(inplace=True),
            nn.Linear(128, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        logits: Tensor = self.features(images)
        return logits


def load_small_classifier(path: Path | str, *, classes: int = 10) -> nn.Module:
    """Load the embedded experiment's classifier, its channels last: that is faster."""
    network = SmallClassifier(classes)
    load_weights(network, path)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval().requires_grad_(False)


@dataclass(frozen=True)
class TimmDescription:
    """What a timm model is, so that jobs can build it without asking the hub."""

    architecture: str
    classes: int
    input_size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, network: nn.Module) -> "TimmDescription":
        """Describe a model that timm has built, with the preprocessing of its own configuration."""
        data = import_timm().data.resolve_model_data_config(network)
        settings: dict[str, Any] = network.pretrained_cfg  # type: ignore[assignment]
        return cls(
            architecture=settings["architecture"],
            classes=network.num_classes,  # type: ignore[arg-type]
            input_size=tuple(data["input_size"][1:]),
            mean=tuple(data["mean"]),
            std=tuple(data["std"]),
        )

    @classmethod
    def read(cls, path: Path | str) -> "TimmDescription":
        """Read it from the description that a download left beside the weights."""
        stored = json.loads(Path(path).read_text())
        try:
            return cls(
                architecture=stored["architecture"],
                classes=stored["classes"],
                input_size=tuple(stored["input_size"]),
                mean=tuple(stored["mean"]),
                std=tuple(stored["std"]),
            )
        except KeyError as error:
            raise ValueError(f"{path} doesn't describe a timm model: it has no {error}") from error


class TimmClassifier(nn.Module):
    """A timm model with the input size and the normalisation that its own configuration asks for.

    Images arrive in [-1, 1] at the diffusion model's size; they are resized, always with bicubic interpolation, to
    the model's input size and normalised with its mean and standard deviation. With ``half`` the network runs
    under autocast to float16, on GPUs.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, description: TimmDescription, *, half: bool = False) -> None:
        super().__init__()
        timm = import_timm()
        self.network = timm.create_model(
            description.architecture, pretrained=False, num_classes=description.classes
        )
        self.input_size = description.input_size
        self.half_precision = half
        self.register_buffer("mean", torch.tensor(description.mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(description.std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        unit = (images + 1) / 2
        if unit.shape[-2:] != self.input_size:
            unit = functional.interpolate(unit, size=self.input_size, mode="bicubic", antialias=True)
        with torch.autocast(images.device.type, enabled=self.half_precision):
            logits: Tensor = self.network((unit - self.mean) / self.std)
        return logits


def pretrained(name: str, revision: str) -> nn.Module:
    """Get a timm model with its weights from the hub, or from its cache where that holds them.

    ``name`` is one of timm's own, or ``hf-hub:owner/name`` for a model of anybody else's.
    """
    timm = import_timm()
    if ":" in name:
        return timm.create_model(f"{name}@{revision}", pretrained=True)  # type: ignore[no-any-return]
    overlay = {"hf_hub_id": f"timm/{name}@{revision}"}
    return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)  # type: ignore[no-any-return]


def import_timm() -> Any:
    """Import timm, also where torchvision's compiled operators don't load.

    torchvision's wheels are built against CUDA builds of torch. With a CPU build its extension is skipped and
    ``import torchvision`` then stops because it registers meta kernels for operators that were never
    declared. Declaring the two is enough; nothing here calls them.
    """
    if torch.version.cuda is None:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for signature in (
            "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        ):
            if not hasattr(torch.ops.torchvision, signature.split("(")[0]):
                library.define(signature)
        _declared.append(library)
    import timm

    return timm


_declared: list[torch.library.Library] = []  # torch forgets the operators when their library is collected
