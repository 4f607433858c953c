"""The diffusion model: a guided_diffusion UNet with learned variance, evaluated on a grid of timesteps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from guided_diffusion.unet import UNetModel
from torch import Tensor, nn

from adds.batching import Batches
from adds.fastpath import accelerate
from adds.schedule import Grid, Schedule

Network = Callable[[Tensor, Tensor], Tensor]
"""Maps states [n, C, H, W] and timesteps of the original process [n] to [n, 2C, H, W]: noise and variance."""


@dataclass(frozen=True)
class Prediction:
    """What one evaluation says of a step: the clipped x0 and the standard deviation of the step's noise."""

    x0: Tensor
    std: Tensor


class Denoiser:
    """Evaluates the network in batches (see `Batches`) and counts the evaluations.

    ``timestep_scale`` multiplies the timesteps that the network sees: checkpoints that were trained with
    guided_diffusion's ``rescale_timesteps`` expect them as if there were 1000.
    """

    def __init__(
        self,
        network: Network,
        schedule: Schedule,
        *,
        batch_size: int = 64,
        device: torch.device | str = "cpu",
        timestep_scale: float = 1.0,
    ) -> None:
        self.network = network
        self.schedule = schedule
        self.batches = Batches(batch_size)
        self.device = torch.device(device)
        self.timestep_scale = timestep_scale
        self.evaluations = 0

    def predict(self, x_t: Tensor, grid: Grid, step: int) -> Prediction:
        """Predict x0 = (x_t - sqrt(1 - abar_t) eps) / sqrt(abar_t), clipped to [-1, 1], and the step's std.

        The variance is interpolated between the grid's two ends by the network, without a clamp, and is
        exactly zero at step 0, where the chain ends.
        """
        self.evaluations += len(x_t)
        timestep = grid.timesteps[step] * self.timestep_scale

        def evaluate(batch: Tensor) -> Tensor:
            return self.network(batch, torch.full((len(batch),), timestep, device=batch.device)).float()

        eps, variance = self.batches.apply(evaluate, x_t).chunk(2, dim=1)
        alpha_bar = float(grid.alphas_bar[step])
        x0 = ((x_t - (1 - alpha_bar) ** 0.5 * eps) / alpha_bar**0.5).clamp(-1, 1)
        share_of_max = (variance + 1) / 2
        log_variance = share_of_max * float(grid.log_variance_max[step]) + (1 - share_of_max) * float(
            grid.log_variance_min[step]
        )
        std = torch.exp(0.5 * log_variance) if step > 0 else torch.zeros_like(x0)
        if not bool(torch.isfinite(x0).all() & torch.isfinite(std).all()):
            raise FloatingPointError(
                f"the diffusion model gave NaN or infinity at timestep {grid.timesteps[step]}: "
                "its weights are broken, or half precision overflowed"
            )
        return Prediction(x0=x0, std=std)


def build_unet(settings: Mapping[str, Any]) -> nn.Module:
    """Build guided_diffusion's UNet from the ``unet`` section of the configuration, with learned variance.

    ``attention_resolutions`` are sizes of the feature map in pixels, as in guided_diffusion's own scripts; with
    ``num_head_channels`` -1, ``num_heads`` says how many attention heads there are. Checkpoints of
    improved-diffusion fit too: names, shapes and the order of heads are the same.
    """
    settings = dict(settings)
    image_size, channels = settings.pop("image_size"), settings.pop("in_channels")
    return UNetModel(  # type: ignore[no-any-return]
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
    return _ready(network, device=device, half=half)


def untrained_unet(
    settings: Mapping[str, Any], *, device: torch.device | str = "cpu", half: bool = False
) -> nn.Module:
    """Build the UNet with random weights everywhere (guided_diffusion starts its last layers at zero)."""
    network = build_unet(settings)
    randomize(network)
    return _ready(network, device=device, half=half)


def randomize(network: nn.Module) -> None:
    """Give a network random weights, the same ones each time, that keep its values in float16's range."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            std = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.1
            parameter.normal_(std=std, generator=generator)


def _ready(network: nn.Module, *, device: torch.device | str, half: bool) -> nn.Module:
    """Make a network that has its weights ready to be evaluated."""
    accelerate(network)
    if half:
        network.convert_to_fp16()  # type: ignore[operator]
        network.dtype = torch.float16  # type: ignore[assignment]
    return network.eval().requires_grad_(False).to(device)


def load_weights(network: nn.Module, path: Path | str) -> None:
    """Make a file's tensors the network's own, mapped into memory; name those that don't fit."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not a checkpoint of tensors: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} is not a state dict: it must map names to tensors")
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
