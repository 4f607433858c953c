"""Classifiers of the timm library: from the hub, or with weights of one's own."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adds.data.download import Expected, use_local
from adds.diffusion.schedule import from_model
from adds.models.weights import DESCRIPTION, WEIGHTS, describe_model, load_weights, save_weights

RESIZE = "bicubic"
"""How images are brought to a model's input size; a part of the identity, as it changes what the network sees."""


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
        self.network = timm.create_model(description.architecture, pretrained=False, num_classes=description.classes)
        self.input_size = description.input_size
        self.half_precision = half
        self.register_buffer("mean", torch.tensor(description.mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(description.std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for images in [-1, 1]."""
        unit = from_model(images)
        if unit.shape[-2:] != self.input_size:
            unit = functional.interpolate(unit, size=self.input_size, mode=RESIZE, antialias=True)
        with torch.autocast("cuda", torch.float16, enabled=self.half_precision):
            logits: Tensor = self.network((unit - self.mean) / self.std)
        return logits


def obtain(order: Mapping[str, Any], folder: Path) -> None:
    """Get a model's weights from the hub (or its cache), or from the file that the configuration names."""
    name, classes = order["name"], order["classes"]
    if "weights" in order:
        network = import_timm().create_model(name, pretrained=False, num_classes=classes)
        use_local(order["weights"], folder / WEIGHTS, Expected())
        load_weights(network, folder / WEIGHTS)
    else:
        network = pretrained(name, order["revision"])
        (folder / WEIGHTS).unlink(missing_ok=True)  # it may be a link to somebody's file
        save_weights(network, folder / WEIGHTS)
    description = TimmDescription.of(network)
    if description.classes != classes:
        raise ValueError(f"classifier.classes is {classes}, but {name} has {description.classes} classes")
    if not _same_network(network, TimmClassifier(description).network):
        raise ValueError(f"{name} is more than its architecture and its weights: it can't be used here")
    describe_model(folder, {**order, **asdict(description), "resize": RESIZE})


def _same_network(network: nn.Module, rebuilt: nn.Module) -> bool:
    """Tell whether jobs, which build the model from its description, will have the one that was found."""
    rebuilt.load_state_dict(network.state_dict(), assign=True)
    size = TimmDescription.of(network).input_size
    with torch.inference_mode():
        images = torch.randn(1, 3, *size)
        return torch.equal(network.eval()(images), rebuilt.eval()(images))


def load(folder: Path, settings: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Load a model as its description says, without asking the hub."""
    description = TimmDescription.read(folder / DESCRIPTION)
    classifier = TimmClassifier(description, half=settings["half_precision"] and device.type == "cuda")
    load_weights(classifier.network, folder / WEIGHTS)
    return classifier.eval().requires_grad_(False).to(device)


def untrained(settings: Mapping[str, Any]) -> TimmClassifier | None:
    """Return the classifier without its weights.

    None for a model of the hub: it would have to be asked which architecture that is.
    """
    if ":" in settings["name"]:
        return None
    with torch.device("meta"):
        network = import_timm().create_model(settings["name"], pretrained=False, num_classes=settings["classes"])
    return TimmClassifier(TimmDescription.of(network))


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
    declared. Declaring the two is enough; nothing here calls them. Where the extension loads they must not be declared
    a second time, so importing comes first.
    """
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        _declare_operators()
    import timm

    return timm


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # what the failed import left


_declared: list[torch.library.Library] = []  # torch forgets the operators when their library is collected
