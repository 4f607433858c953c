"""Training the small networks of experiments that need no GPU: a diffusion model and a classifier."""

import copy
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from guided_diffusion import gaussian_diffusion
from guided_diffusion.respace import SpacedDiffusion
from torch import Tensor, nn
from torch.nn import functional

from adds.data.images import Examples
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import Noise
from adds.diffusion.reverse import Continuations
from adds.diffusion.schedule import to_model
from adds.machine.logs import progress_bar
from adds.models.unet import build_unet
from adds.models.weights import WEIGHTS, describe_model, save_weights

logger = logging.getLogger(__name__)

Record = dict[str, float]

WARM_UP_STEPS = 100
EMA_DECAY = 0.999
BETAS = (0.9, 0.99)
"""Adam's: in as few steps as these the usual 0.999 remembers too much."""
LOG_EVERY, RECORDS = 250, 40
"""Steps between two records of the loss, at least; a long training has about so many records."""
CHECKPOINT = "checkpoint.pt"
"""The file in a model's folder that a training which was stopped goes on from."""
AT_ONCE = 500
"""Images that held-out errors are measured on together."""


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how fast to train.

    A diffusion model's timesteps are drawn in proportion to abar_t to the power of ``low_noise``: with 0 all alike,
    above that more of those with little noise.
    """

    steps: int
    batch_size: int
    learning_rate: float
    low_noise: float = 0.0


@dataclass
class Course:
    """A training under way: everything that its next step depends on, torch's random numbers included.

    ``average`` follows the network with a decay, where there is one; it is what is trained then.
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    average: nn.Module | None = None
    step: int = 0
    log: list[Record] = field(default_factory=list)

    @property
    def trained(self) -> nn.Module:
        """What the training gives."""
        return self.network if self.average is None else self.average

    def save(self, path: Path) -> None:
        """Leave a checkpoint; one that was there before stays whole until this one is."""
        state = {name: part.state_dict() for name, part in self._parts().items()}
        state |= {"step": self.step, "log": self.log, "random": torch.get_rng_state()}
        partial = path.with_name(path.name + ".part")
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path) -> None:
        """Go on where a checkpoint was left."""
        state = torch.load(path, weights_only=True)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step, self.log = state["step"], state["log"]
        torch.set_rng_state(state["random"])

    def _parts(self) -> dict[str, Any]:
        parts = {"network": self.network, "optimizer": self.optimizer, "average": self.average}
        return {name: part for name, part in parts.items() if part is not None}


def run(
    course: Course,
    settings: TrainingSettings,
    *,
    name: str,
    loss_of: Callable[[], Tensor],
    held_out: Callable[[], Record],
    checkpoint: Path | None,
    clip: float | None = None,
) -> tuple[nn.Module, list[Record]]:
    """Take all steps of a training; return what was trained and a log of the loss.

    ``loss_of`` draws a batch and returns its loss, ``held_out`` says how good what was trained is by now. At every
    record a checkpoint is left, from which a training that was stopped goes on as if it hadn't been.
    """
    if checkpoint is not None and checkpoint.exists():
        course.resume(checkpoint)
    steps, every = range(course.step, settings.steps), max(LOG_EVERY, settings.steps // RECORDS)
    running = 0.0
    bar = progress_bar(steps, desc=name, unit="step", initial=course.step, total=settings.steps)
    for step in bar:
        for group in course.optimizer.param_groups:
            group["lr"] = _learning_rate(step, settings)
        loss = loss_of()
        course.optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(course.network.parameters(), clip)
        course.optimizer.step()
        if course.average is not None:
            _follow(course.average, course.network, min(EMA_DECAY, (1 + step) / (10 + step)))
        running += float(loss.detach())
        if (step + 1) % every == 0 or step + 1 == settings.steps:
            found = held_out()
            course.log.append({"step": step + 1, "loss": running / (step % every + 1), **found})
            told = {key: f"{value:.4f}" for key, value in list(course.log[-1].items())[1:]}
            bar.set_postfix(told)
            logger.debug("%s: step %d of %d, %s", name, step + 1, settings.steps, told)
            course.step, running = step + 1, 0.0
            if checkpoint is not None:
                course.save(checkpoint)
    return course.trained.eval(), course.log


def finish(network: nn.Module, recipe: Mapping[str, Any], folder: Path) -> None:
    """Leave what was trained in its folder, with what it was made by; the checkpoint has done its duty."""
    save_weights(network, folder / WEIGHTS, recipe)
    describe_model(folder, recipe)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def _follow(average: nn.Module, network: nn.Module, decay: float) -> None:
    """Move a moving average towards a network."""
    with torch.no_grad():
        for kept, new in zip(average.parameters(), network.parameters(), strict=True):
            kept.lerp_(new, 1 - decay)


def _learning_rate(step: int, settings: TrainingSettings) -> float:
    """Return a linear warm-up followed by a cosine to zero."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    return settings.learning_rate * warm_up * (1 + math.cos(math.pi * step / settings.steps)) / 2


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


def held_out_mse(network: nn.Module, process: SpacedDiffusion, data: Examples, *, seed: int = 0) -> float:
    """Return the mean squared error of the predicted noise on images that were not trained on, all t alike."""
    generator = torch.Generator().manual_seed(seed)
    images = to_model(torch.from_numpy(data.images))
    timesteps = torch.arange(len(images)) * process.num_timesteps // len(images)
    normal = torch.randn(images.shape, generator=generator)
    parts = zip(images.split(AT_ONCE), timesteps.split(AT_ONCE), normal.split(AT_ONCE), strict=True)
    with torch.inference_mode():
        errors = [process.training_losses(network, x, t, noise=noise)["mse"] for x, t, noise in parts]
    return float(torch.cat(errors).mean())


def train_diffusion(
    train: Examples,
    held_out: Examples,
    *,
    unet: Mapping[str, Any],
    schedule: str,
    timesteps: int,
    settings: TrainingSettings,
    seed: int,
    checkpoint: Path | None = None,
) -> tuple[nn.Module, list[Record]]:
    """Train a UNet with learned variance; return its moving average and a log of the loss.

    The error is that of what the network predicts: of the noise, or of v, which is 1 / abar_t of the noise's.
    """
    torch.manual_seed(seed)
    process = training_process(schedule, timesteps)
    network = build_unet(unet)
    alphas_bar = torch.from_numpy(process.alphas_cumprod).float()
    if unet.get("predicts_v"):
        network.alphas_bar = alphas_bar.clone()
    weights = 1 / alphas_bar if unet.get("predicts_v") else torch.ones(timesteps)
    average = copy.deepcopy(network).requires_grad_(False)
    optimizer = torch.optim.Adam(network.parameters(), betas=BETAS, fused=True)
    images = to_model(torch.from_numpy(train.images))

    def loss_of() -> Tensor:
        batch = images[torch.randint(len(images), (settings.batch_size,))]
        if settings.low_noise:
            t = torch.multinomial(alphas_bar**settings.low_noise, settings.batch_size, replacement=True)
        else:
            t = torch.randint(timesteps, (settings.batch_size,))
        losses = process.training_losses(network, batch, t)
        loss: Tensor = (weights[t] * losses["mse"] + losses["vb"]).mean()
        return loss

    return run(
        Course(network, optimizer, average),
        settings,
        name="diffusion model",
        loss_of=loss_of,
        held_out=lambda: {"held_out_mse": held_out_mse(average, process, held_out)},
        checkpoint=checkpoint,
        clip=1.0,
    )


def generate(denoiser: Denoiser, *, steps: int, count: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """Draw images from the model alone, in [-1, 1]: [count, *shape]."""
    schedule, device = denoiser.schedule, denoiser.device
    grid = schedule.evenly(steps)
    noise = Noise(seed=seed, stage="selection", image=0, sigma=1.0, device=device)
    samples = torch.arange(count, device=device)
    continuations = Continuations(
        denoiser,
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


def accuracy(network: nn.Module, data: Examples, see: See = _clean) -> float:
    """Return the share of images whose class is right."""
    images, labels = to_model(torch.from_numpy(data.images)), torch.from_numpy(data.labels)
    with torch.inference_mode():
        predicted = torch.cat([network(see(part)).argmax(1) for part in images.split(AT_ONCE)])
        return float((predicted == labels).float().mean())


def train_classifier(
    train: Examples,
    held_out: Examples,
    *,
    settings: TrainingSettings,
    seed: int,
    build: Callable[[], nn.Module | None],
    see: See = _clean,
    checkpoint: Path | None = None,
) -> tuple[nn.Module, list[Record]]:
    """Train what ``build`` gives on what it is to see of the images; return it and a log of the loss."""
    torch.manual_seed(seed)
    network = build()
    if network is None:
        raise ValueError("a classifier whose architecture is unknown until it has been obtained can't be trained")
    images, labels = torch.from_numpy(train.images), torch.from_numpy(train.labels)

    def loss_of() -> Tensor:
        chosen = torch.randint(len(train), (settings.batch_size,))
        return functional.cross_entropy(network(see(to_model(images[chosen]))), labels[chosen])

    return run(
        Course(network, torch.optim.Adam(network.parameters())),
        settings,
        name="classifier",
        loss_of=loss_of,
        held_out=lambda: {"held_out_accuracy": accuracy(network, held_out, see)},
        checkpoint=checkpoint,
    )
