"""The embedded experiment's classifier of 8 x 8 grey images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adds.data.download import Expected, use_local
from adds.models.weights import WEIGHTS, describe_model, load_weights


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


def obtain(order: Mapping[str, Any], folder: Path) -> None:
    """Take the weights from the file that the configuration names."""
    use_local(order["weights"], folder / WEIGHTS, Expected())
    load_weights(SmallClassifier(order["classes"]), folder / WEIGHTS)
    describe_model(folder, order)


def load(folder: Path, settings: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Load what `obtain` or the training left."""
    return load_small(folder / WEIGHTS, settings["classes"], device)


def load_small(weights: Path, classes: int, device: torch.device) -> nn.Module:
    """Load the classifier, its channels last: that is faster."""
    network = SmallClassifier(classes)
    load_weights(network, weights)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval().requires_grad_(False).to(device)


def untrained(settings: Mapping[str, Any]) -> SmallClassifier:
    """Return the classifier before it is trained."""
    return SmallClassifier(settings["classes"])
