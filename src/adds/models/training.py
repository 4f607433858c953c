"""Training the embedded experiment's two networks: a small diffusion model and a small classifier."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from guided_diffusion import gaussian_diffusion
from guided_diffusion.respace import SpacedDiffusion
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from adds.data.digits import Digits
from adds.diffusion.denoiser import Denoiser, Network
from adds.diffusion.noise import Noise
from adds.diffusion.reverse import Continuations
from adds.diffusion.schedule import Schedule, evenly_spaced, to_model
from adds.models.classifiers.small import SmallClassifier
from adds.models.unet import build_unet

Record = dict[str, float]

WARM_UP_STEPS = 100
EMA_DECAY = 0.999
BETAS = (0.9, 0.99)
"""Adam's: in as few steps as these the usual 0.999 remembers too much."""
LOG_EVERY = 250


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how fast to train."""

    steps: int
    batch_size: int
    learning_rate: float


def _learning_rate(step: int, settings: TrainingSettings) -> float:
    """Return a linear warm-up followed by a cosine to zero."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    return settings.learning_rate * warm_up * (1 + math.cos(math.pi * step / settings.steps)) / 2


def _logs(step: int, settings: TrainingSettings) -> bool:
    """Tell whether the loss is logged after this step."""
    return (step + 1) % LOG_EVERY == 0 or step + 1 == settings.steps


def _record(step: int, losses: float, **held_out: float) -> Record:
    """Return the mean of the losses since the last record, which ``losses`` is the sum of."""
    return {"step": step + 1, "loss": losses / (step % LOG_EVERY + 1), **held_out}


def training_process(schedule_name: str, timesteps: int, kept: Iterable[int] | None = None) -> SpacedDiffusion:
    """Build the forward process with guided_diffusion's hybrid loss: noise by MSE, variance by the bound.

    ``kept`` respaces it to some of its timesteps.
    """
    return SpacedDiffusion(
        use_timesteps=range(timesteps) if kept is None else kept,
        betas=gaussian_diffusion.get_named_beta_schedule(schedule_name, timesteps),
        model_mean_type=gaussian_diffusion.ModelMeanType.EPSILON,
        model_var_type=gaussian_diffusion.ModelVarType.LEARNED_RANGE,
        loss_type=gaussian_diffusion.LossType.RESCALED_MSE,
    )


def held_out_mse(network: nn.Module, process: SpacedDiffusion, data: Digits, *, seed: int = 0) -> float:
    """Return the mean squared error of the predicted noise on images that were not trained on, all t alike."""
    generator = torch.Generator().manual_seed(seed)
    images = to_model(torch.from_numpy(data.images))
    timesteps = torch.arange(len(images)) * process.num_timesteps // len(images)
    normal = torch.randn(images.shape, generator=generator)
    with torch.inference_mode():
        losses = process.training_losses(network, images, timesteps, noise=normal)
    return float(losses["mse"].mean())


def train_diffusion(
    train: Digits,
    held_out: Digits,
    *,
    unet: Mapping[str, Any],
    schedule: str,
    timesteps: int,
    settings: TrainingSettings,
    seed: int,
) -> tuple[nn.Module, list[Record]]:
    """Train a UNet with learned variance; return its moving average and a log of the loss."""
    torch.manual_seed(seed)
    process = training_process(schedule, timesteps)
    network = build_unet(unet)
    average = copy.deepcopy(network).requires_grad_(False)
    optimizer = torch.optim.Adam(network.parameters(), betas=BETAS, fused=True)
    images = to_model(torch.from_numpy(train.images))
    log: list[Record] = []
    running = 0.0
    for step in (bar := tqdm(range(settings.steps), desc="diffusion model", unit="step", mininterval=5)):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(step, settings)
        batch = images[torch.randint(len(images), (settings.batch_size,))]
        t = torch.randint(timesteps, (settings.batch_size,))
        loss = process.training_losses(network, batch, t)["loss"].mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        decay = min(EMA_DECAY, (1 + step) / (10 + step))
        with torch.no_grad():
            for kept, new in zip(average.parameters(), network.parameters(), strict=True):
                kept.lerp_(new, 1 - decay)
        running += float(loss.detach())
        if _logs(step, settings):
            log.append(_record(step, running, held_out_mse=held_out_mse(average, process, held_out)))
            bar.set_postfix(loss=f"{log[-1]['loss']:.4f}", held_out=f"{log[-1]['held_out_mse']:.4f}")
            running = 0.0
    return average.eval(), log


def generate(
    network: Network,
    schedule: Schedule,
    *,
    steps: int,
    count: int,
    shape: tuple[int, ...],
    seed: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Draw images from the model alone, in [-1, 1]: [count, *shape]."""
    grid = schedule.respaced(evenly_spaced(steps, len(schedule)))
    noise = Noise(seed=seed, stage="selection", image=0, sigma=1.0, device=device)
    samples = torch.arange(count, device=device)
    continuations = Continuations(
        Denoiser(network, schedule, device=device),
        grid,
        states=noise.normal(shape, samples=samples, timestep=len(schedule)),
        steps=torch.full((count,), len(grid) - 1, device=device),
        samples=samples,
        noise=noise,
    )
    return continuations.run([1]).images


See = Callable[[Tensor], Tensor]
"""What a classifier sees of images in [-1, 1]."""


def _clean(images: Tensor) -> Tensor:
    return images


def accuracy(network: nn.Module, data: Digits, see: See = _clean) -> float:
    """Return the share of images whose class is right."""
    with torch.inference_mode():
        predicted = network(see(to_model(torch.from_numpy(data.images)))).argmax(1)
        return float((predicted == torch.from_numpy(data.labels)).float().mean())


def train_classifier(
    train: Digits, held_out: Digits, *, settings: TrainingSettings, seed: int, see: See = _clean
) -> tuple[nn.Module, list[Record]]:
    """Train the small classifier on what it is to see of the images; return it and a log of the loss."""
    torch.manual_seed(seed)
    network = SmallClassifier()
    optimizer = torch.optim.Adam(network.parameters())
    images, labels = torch.from_numpy(train.images), torch.from_numpy(train.labels)
    log: list[Record] = []
    running = 0.0
    for step in tqdm(range(settings.steps), desc="classifier", unit="step", mininterval=5):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(step, settings)
        chosen = torch.randint(len(train), (settings.batch_size,))
        loss = functional.cross_entropy(network(see(to_model(images[chosen]))), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += float(loss.detach())
        if _logs(step, settings):
            log.append(_record(step, running, held_out_accuracy=accuracy(network, held_out, see)))
            running = 0.0
    return network.eval(), log
