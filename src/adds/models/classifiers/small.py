"""The embedded experiment's classifier of 8 x 8 grey images."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adds.data.download import Expected, use_local
from adds.models.weights import WEIGHTS, describe_model, load_weights


class SmallClassifier(nn.Module):
    """A classifier of grey images: a convolution, others that halve the image down to 4 x 4, and two linear layers.

    ``halvings`` are the channels after each halving, ``hidden`` those between the linear layers.
    """

    def __init__(self, classes: int = 10, halvings: Sequence[int] = (32,), hidden: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(inplace=True)]
        for before, after in pairwise([32, *halvings]):
            layers += [nn.Conv2d(before, after, 3, padding=1, stride=2), nn.ReLU(inplace=True)]
        layers += [nn.Flatten(), nn.Linear(halvings[-1] * 4 * 4, hidden), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers, nn.Linear(hidden, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        logits: Tensor = self.features(images)
        return logits


Build = Callable[[int], SmallClassifier]
"""Makes an untrained classifier of so many classes."""


def obtain(order: Mapping[str, Any], folder: Path, build: Build = SmallClassifier) -> None:
    """Take the weights from the file that the configuration names."""
    use_local(order["weights"], folder / WEIGHTS, Expected())
    load_weights(build(order["classes"]), folder / WEIGHTS)
    describe_model(folder, order)


def load(folder: Path, settings: Mapping[str, Any], device: torch.device, build: Build = SmallClassifier) -> nn.Module:
    """Load what `obtain` or the training left."""
    return load_small(folder / WEIGHTS, settings["classes"], device, build)


def load_small(weights: Path, classes: int, device: torch.device, build: Build = SmallClassifier) -> nn.Module:
    """Load the classifier, its channels last: that is faster."""
    network = build(classes)
    load_weights(network, weights)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval().requires_grad_(False).to(device)


def untrained(settings: Mapping[str, Any], build: Build = SmallClassifier) -> SmallClassifier:
    """Return the classifier before it is trained."""
    return build(settings["classes"])
