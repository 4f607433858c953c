"""A classifier of the user's own: a Python file that builds a network.

The file defines

    RANGE = (0, 1)                # or (-1, 1): which values the network's images have
    def build() -> nn.Module:     # maps images [n, C, H, W] to logits [n, classes]

and the configuration may name a file of weights for it. It is run because the configuration says so; nothing else that
this project loads is ever executed.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from adds.data.download import Expected, use_local
from adds.models.weights import DESCRIPTION, WEIGHTS, describe_model, load_weights, save_weights, sha256_of

RANGES = ((0, 1), (-1, 1))


class InModelRange(nn.Module):
    """Gives a network images in the range that it wants; they arrive in [-1, 1]."""

    def __init__(self, network: nn.Module, low: int) -> None:
        super().__init__()
        self.network = network
        self.low = low

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        logits: Tensor = self.network((images + 1) / 2 if self.low == 0 else images)
        return logits


def _run(file: Path) -> ModuleType:
    """Run the user's file and check that it has what is needed."""
    spec = importlib.util.spec_from_file_location("users_classifier", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"classifier.file is {file}: it must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # data classes look there
    spec.loader.exec_module(module)
    if getattr(module, "RANGE", None) not in [*RANGES, *map(list, RANGES)]:
        raise ValueError(f"{file} must say which values its images have: RANGE = (0, 1) or RANGE = (-1, 1)")
    if not callable(getattr(module, "build", None)):
        raise ValueError(f"{file} has no function build() that returns the network")
    return module


def _network(file: Path, weights: Path | None) -> InModelRange:
    module = _run(file)
    network = module.build()
    if not isinstance(network, nn.Module):
        raise ValueError(f"build() of {file} returned {type(network).__name__} instead of a torch.nn.Module")
    if weights:
        load_weights(network, weights)
    return InModelRange(network, module.RANGE[0])


def obtain(order: Mapping[str, Any], folder: Path) -> None:
    """Note which file builds the network, and link to its weights; without any, the file of weights is empty."""
    file = Path(order["file"])
    if "weights" in order:
        use_local(order["weights"], folder / WEIGHTS, Expected())
    else:
        (folder / WEIGHTS).unlink(missing_ok=True)  # it may be a link to somebody's file
        save_weights(_network(file, None).network, folder / WEIGHTS)
    _network(file, folder / WEIGHTS)
    describe_model(folder, {"classes": order["classes"], "file": str(file), "code": sha256_of(file)})


def load(folder: Path, _settings: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Build the network again, from the same code and weights."""
    description = json.loads((folder / DESCRIPTION).read_text())
    file = Path(description["file"])
    if not file.is_file() or sha256_of(file) != description["code"]:
        raise ValueError(
            f"{file} is not the code that {folder / DESCRIPTION} describes any more: run the workflow again"
        )
    return _network(file, folder / WEIGHTS).eval().requires_grad_(False).to(device)
