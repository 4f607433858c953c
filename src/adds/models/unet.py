"""The diffusion model: a guided_diffusion UNet with learned variance, plain, accelerated or compiled."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adds.diffusion.denoiser import Network
from adds.models.compiled import Compilable, compiled_or_plain, package_for
from adds.models.fast_unet import UNet, accelerate, halve
from adds.models.weights import load_weights


def build_unet(settings: Mapping[str, Any]) -> nn.Module:
    """Build guided_diffusion's UNet from the ``unet`` section of the configuration, with learned variance.

    ``attention_resolutions`` are sizes of the feature map in pixels, as in guided_diffusion's own scripts; with
    ``num_head_channels`` -1, ``num_heads`` says how many attention heads there are. Checkpoints of
    improved-diffusion fit too: names, shapes and the order of heads are the same. ``space_to_channels`` and
    ``predicts_v`` are `UNet`'s own; then ``image_size`` and ``in_channels`` are still the images', outside.
    """
    settings = dict(settings)
    block = settings.get("space_to_channels", 1)
    image_size, channels = settings.pop("image_size") // block, settings.pop("in_channels") * block**2
    return UNet(
        image_size=image_size,
        in_channels=channels,
        out_channels=2 * channels,
        model_channels=settings.pop("num_channels"),
        attention_resolutions=tuple(image_size // size for size in settings.pop("attention_resolutions")),
        channel_mult=tuple(settings.pop("channel_mult")),
        **settings,
    )


def load_unet(
    path: Path | str,
    settings: Mapping[str, Any],
    *,
    device: torch.device | str = "cpu",
    half: bool = False,
) -> nn.Module:
    """Load a checkpoint of tensors into the UNet that ``settings`` describe; every tensor must fit."""
    with torch.device("meta"):  # no time and memory for weights that are replaced at once
        network = build_unet(settings)
    load_weights(network, path)
    return ready(network, device=device, half=half)


def untrained_unet(settings: Mapping[str, Any], *, device: torch.device | str = "cpu", half: bool = False) -> nn.Module:
    """Build the UNet with random weights everywhere (guided_diffusion starts its last layers at zero)."""
    network = build_unet(settings)
    randomize(network)
    return ready(network, device=device, half=half)


def randomize(network: nn.Module) -> None:
    """Give a network random weights, the same ones each time, that keep its values in float16's range."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            std = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.1
            parameter.normal_(std=std, generator=generator)


def ready(network: nn.Module, *, device: torch.device | str, half: bool) -> nn.Module:
    """Make a network that has its weights ready to be evaluated."""
    accelerate(network)
    if half:
        halve(network)
    return network.eval().requires_grad_(False).to(device)


def load_diffusion(
    weights: Path | str,
    settings: Mapping[str, Any],
    device: torch.device,
    compiled: Path | None = None,
    batch_size: int = 1,
) -> Network:
    """Load the diffusion model, in half precision on GPUs only, compiled where there is a folder for that."""
    network = load_unet(weights, settings["unet"], device=device, half=halved(settings, device))
    if compiled is None:
        return network
    return compiled_or_plain(network, compiled, compilable(settings, device, batch_size))


def compile_diffusion(settings: Mapping[str, Any], device: torch.device, batch_size: int, folder: Path) -> None:
    """Compile the diffusion model of a configuration, whose weights need not be there yet."""
    network = untrained_unet(settings["unet"], device=device, half=halved(settings, device))
    package_for(network, folder, compilable(settings, device, batch_size))


def compilable(settings: Mapping[str, Any], device: torch.device, batch_size: int) -> Compilable:
    """Say what a diffusion model is to the compiler: architecture, precision, the shape of its states and how many."""
    unet = settings["unet"]
    precision = "float16" if halved(settings, device) else "float32"
    return Compilable(
        facts={"unet": json.dumps(unet, sort_keys=True), "precision": precision},
        shape=(unet["in_channels"], unet["image_size"], unet["image_size"]),
        most=batch_size,
        device=device,
    )


def halved(settings: Mapping[str, Any], device: torch.device) -> bool:
    """Tell whether a network computes in half precision: where it is asked for, on GPUs."""
    return bool(settings["half_precision"]) and device.type == "cuda"
