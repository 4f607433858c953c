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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from adds.data.download import Expected, use_local
from adds.diffusion.schedule import from_model, to_model
from adds.models.weights import DESCRIPTION, WEIGHTS, describe_model, load_weights, save_weights, sha256_of

RANGES = ((0, 1), (-1, 1))
PROBES = 64
MOST_OF_OTHERS = 1e-3
"""By how much of its largest logit an image may depend on its batch: that is rounding."""


class InModelRange(nn.Module):
    """Gives a network images in the range that it wants; they arrive in [-1, 1]."""

    def __init__(self, network: nn.Module, low: int) -> None:
        super().__init__()
        self.network = network
        self.low = low

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        logits: Tensor = self.network(from_model(images) if self.low == 0 else images)
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
    _check_rows(_network(file, folder / WEIGHTS), order["shape"], file)
    classes = [_classes(_network(file, folder / WEIGHTS), order["shape"]) for _ in range(2)]
    if classes[0] != classes[1]:
        raise ValueError(f"{file} builds another network each time: fix what is random, or keep it in the weights")
    described = {"classes": order["classes"], "shape": order["shape"], "file": str(file), "code": sha256_of(file)}
    describe_model(folder, {**described, "predicts": classes[0]})


def _probes(shape: Sequence[int]) -> Tensor:
    """Return some random images."""
    return to_model(torch.rand(PROBES, *shape, generator=torch.Generator().manual_seed(0)))


def _check_rows(network: nn.Module, shape: Sequence[int], file: Path) -> None:
    """Refuse a network that sees other images of its batch: samples would not be independent, nor certificates true."""
    images = _probes(shape)
    with torch.inference_mode():
        together, in_pairs = network.eval()(images), torch.cat([network(pair) for pair in images.split(2)])
    if not float((together - in_pairs).abs().max()) <= MOST_OF_OTHERS * float(together.abs().max()):
        raise ValueError(
            f"the network that {file} builds gives an image other logits beside other images, as with a batch's own "
            "statistics (BatchNorm without running ones): its samples would not be independent, and no certificate true"
        )


def _classes(network: nn.Module, shape: Sequence[int]) -> str:
    """Name a network by the classes that it gives some random images: its code may be in more files than one."""
    with torch.inference_mode():
        return "".join(f"{label:x}." for label in network.eval()(_probes(shape)).argmax(dim=1).tolist())


def load(folder: Path, _settings: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Build the network again, from the same code and weights."""
    description = json.loads((folder / DESCRIPTION).read_text())
    file = Path(description["file"])
    if not file.is_file() or sha256_of(file) != description["code"]:
        raise ValueError(
            f"{file} is not the code that {folder / DESCRIPTION} describes any more: run the workflow again"
        )
    network = _network(file, folder / WEIGHTS).eval().requires_grad_(False)
    if _classes(network, description["shape"]) != description["predicts"]:
        raise ValueError(
            f"the network that {file} builds is not the one that {folder / DESCRIPTION} describes, although the file "
            "is the same: something that it imports has changed. Run again with --forcerun obtain_classifier"
        )
    return network.to(device)
