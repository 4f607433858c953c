"""Classifiers: anything that maps images in [-1, 1] to logits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adds.denoiser import load_weights

Classifier = Callable[[Tensor], Tensor]
"""Maps images [n, C, H, W] in [-1, 1] to logits [n, classes]."""


class BatchedClassifier:
    """Predicts classes in batches of one fixed, padded size, as the denoiser does."""

    def __init__(self, classifier: Classifier, *, classes: int, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
        self.classifier = classifier
        self.classes = classes
        self.batch_size = batch_size

    def predict(self, images: Tensor) -> Tensor:
        """Return the class of every image: int64 [n]."""
        return torch.cat([self._predict(part) for part in images.split(self.batch_size)])

    def _predict(self, images: Tensor) -> Tensor:
        padding = self.batch_size - len(images)
        batch = torch.cat([images, images[-1:].expand(padding, *images.shape[1:])])
        with torch.inference_mode():
            logits = self.classifier(batch)[: len(images)].float()
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
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        logits: Tensor = self.features(images)
        return logits


def load_small_classifier(path: Path | str, *, classes: int = 10) -> nn.Module:
    """Load the embedded experiment's classifier."""
    network = SmallClassifier(classes)
    load_weights(network, path)
    return network.eval().requires_grad_(False)


class TimmClassifier(nn.Module):
    """A timm model with the resize and the normalisation that its own configuration asks for.

    Images arrive in [-1, 1] at the diffusion model's size; they are resized with bicubic interpolation to the
    model's input size and normalised with its mean and standard deviation.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, *, pretrained: bool = True, checkpoint: Path | str | None = None) -> None:
        super().__init__()
        timm = import_timm()
        self.network = timm.create_model(name, pretrained=pretrained and checkpoint is None)
        if checkpoint is not None:
            load_weights(self.network, checkpoint)
        data = timm.data.resolve_model_data_config(self.network)
        self.input_size: tuple[int, int] = tuple(data["input_size"][1:])
        self.register_buffer("mean", torch.tensor(data["mean"]).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(data["std"]).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        unit = (images + 1) / 2
        if unit.shape[-2:] != self.input_size:
            unit = functional.interpolate(unit, size=self.input_size, mode="bicubic", antialias=True)
        logits: Tensor = self.network((unit - self.mean) / self.std)
        return logits


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
