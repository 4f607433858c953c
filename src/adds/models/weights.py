"""Files of weights: loaded as tensors only, and described beside them by what names them in a run's identity.

Descriptions need no torch.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def sha256_of(path: Path | str) -> str:
    """Return the checksum that names a model in a run's identity."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


WEIGHTS, DESCRIPTION = "weights", "description.json"
"""The files in a model's folder. Weights are told apart by their content: safetensors, or torch's own format."""


def describe_model(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write what a folder's weights are: ``settings``, their checksum, and the state of the file now."""
    weights = folder / WEIGHTS
    described = {**settings, "sha256": sha256_of(weights), "state": _state(weights)}
    (folder / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n")


def _state(path: Path) -> list[int]:
    """Return size and time of change of a file, or of what a link leads to."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def checksums(folder: Path) -> dict[str, Any]:
    """Return what names a model in a run's identity, after checking that its weights are still those described.

    Samples of a network that was replaced must never be counted with those of the one before.
    """
    weights, description = folder / WEIGHTS, folder / DESCRIPTION
    stored: dict[str, Any] = json.loads(description.read_text())
    if stored["state"] != _state(weights) and stored["sha256"] != sha256_of(weights):
        raise ValueError(
            f"{weights} is not the file that {description} describes any more: delete both and run again, so that "
            "what was sampled with the old one is not used"
        )
    return {key: stored[key] for key in IDENTIFYING if key in stored}


IDENTIFYING = ("sha256", "code", "architecture", "input_size", "mean", "std", "resize", "predicts")
"""What of a description determines a network's values: its weights, and how it is built and fed."""


def read_tensors(path: Path | str) -> "dict[str, Tensor]":
    """Read a file of tensors, safetensors or torch's own format, mapped into memory; nothing in it is executed."""
    from pickle import UnpicklingError

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with Path(path).open("rb") as file:
        zipped = file.read(2) == b"PK"
    try:
        if not zipped:
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a checkpoint of tensors: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError(f"{path} is not a state dict: it must map names to tensors")
    return state


def save_weights(network: "nn.Module", path: Path | str, made_by: Mapping[str, Any] | None = None) -> None:
    """Write a network's tensors as safetensors, with what they were made by."""
    import torch
    from safetensors.torch import save

    tensors = {
        name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in network.state_dict().items()
    }
    Path(path).write_bytes(save(tensors, metadata={"made_by": json.dumps(made_by or {})}))


def made_by(path: Path | str) -> dict[str, Any]:
    """Return what a file of safetensors says that it was made by."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        stored: dict[str, Any] = json.loads((file.metadata() or {}).get("made_by", "{}"))
    return stored


def load_weights(network: "nn.Module", path: Path | str) -> None:
    """Make a file's tensors the network's own; name those that don't fit."""
    state = read_tensors(path)
    expected = network.state_dict()
    problems = [f"{name} is missing" for name in expected.keys() - state.keys()]
    problems += [f"{name} is not expected" for name in state.keys() - expected.keys()]
    problems += [
        f"{name} has shape {tuple(state[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if problems:
        shown = "; ".join(sorted(problems)[:5])
        raise ValueError(f"{path} doesn't fit the network of the configuration: {shown} ({len(problems)} in all)")
    fitting = {name: state[name].to(tensor.dtype) for name, tensor in expected.items()}
    network.load_state_dict(fitting, assign=True)
