"""Whether the networks are what a configuration takes them for, found out on clean images before anything is sampled.

Wrong weights, classes with other numbers or pixels in another range don't stop a certification: they make it worthless.
A verdict is against a network only where chance can't have done it: where the whole 95% interval is beyond the limit.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import Noise
from adds.diffusion.schedule import to_model
from adds.methods.carlini import denoise
from adds.methods.release import Subject, release
from adds.models.pipeline import BatchedClassifier
from adds.results.accuracy import interval, mean_interval

CLASSIFIED, DENOISED = 250, 64
"""How many images are looked at, of those that the list has: a minute's work for the largest networks."""

SIGMAS = (0.25, 0.5, 1.0)
"""The noise levels of the denoiser's test, whatever the run's: a sigma more is no reason to test again."""


@dataclass(frozen=True)
class Accuracy:
    """How many of the clean ``images`` a classifier has ``right``, as a share with its exact binomial 95% interval."""

    images: int
    right: int
    accuracy: float
    low: float
    high: float

    def __str__(self) -> str:
        """Say it in percent."""
        share, low, high = (f"{100 * value:.1f}" for value in (self.accuracy, self.low, self.high))
        return f"the classifier has {share}% [{low}, {high}] of {self.images} clean images right"

    def problem(self, least: float | None) -> str | None:
        """Say what is wrong, or None: the accuracy is certainly below ``least``."""
        if least is None or self.high >= least:
            return None
        return (
            f"{self}, below classifier.least_accuracy = {least:g}: are the classes numbered as in dataset.list, "
            "are these the weights that belong to it, and does it get the range of pixels and the normalisation that "
            "it was trained with? If it is as good as it gets, set classifier.least_accuracy lower, or to null"
        )


@dataclass(frozen=True)
class Denoising:
    """What is left of noise of size ``sigma`` when a denoiser has predicted x0 once, at ``timestep``.

    ``error`` and ``noised_error`` are mean squared errors in the model's units, of the prediction and of the noised
    image itself, clipped to [-1, 1] as predictions are. (Unclipped, large noise would make any guess look good.)
    ``share`` is the mean over images of the one divided by the other, with its 95% interval by Student's t; one image
    has none.
    """

    sigma: float
    timestep: int
    images: int
    error: float
    noised_error: float
    share: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        """Say it in a line."""
        ends = f" [{self.low:.2f}, {self.high:.2f}]" if self.low is not None else ""
        return (
            f"at sigma {self.sigma} the diffusion model leaves {self.share:.2f}{ends} of the squared error of "
            f"{self.images} noised images"
        )

    def problem(self, most: float | None) -> str | None:
        """Say what is wrong, or None: what is left is certainly more than ``most``."""
        if most is None or self.low is None or self.low <= most:
            return None
        return (
            f"{self}, above diffusion.most_error = {most:g}: are these the weights that belong to diffusion.unet, were "
            "they trained with diffusion.schedule, timesteps and rescale_timesteps, on images like these in [-1, 1], "
            "to predict the noise? If it is as good as it gets, set diffusion.most_error higher, or to null"
        )


def _states(pictures: Sequence[Picture], device: torch.device) -> Tensor:
    """Return images in the model's units: [n, C, H, W] in [-1, 1]."""
    return to_model(torch.from_numpy(np.stack([picture.pixels for picture in pictures])).to(device))


def accuracy_on(classifier: BatchedClassifier, pictures: Sequence[Picture], device: torch.device) -> Accuracy | None:
    """Classify images as they are, without noise; None where they have no labels."""
    labels = [picture.label for picture in pictures if picture.label is not None]
    if len(labels) < len(pictures) or not labels:
        return None
    with torch.inference_mode():
        predicted = classifier.predict(_states(pictures, device)).tolist()
    right = sum(found == label for found, label in zip(predicted, labels, strict=True))
    return Accuracy(len(labels), right, right / len(labels), *interval(right, len(labels)))


def denoising_of(denoiser: Denoiser, pictures: Sequence[Picture], sigma: float) -> Denoising:
    """Noise every image once and denoise it in one step, as the method of Carlini et al. does."""
    noised = torch.cat([_released(denoiser, picture, sigma) for picture in pictures])
    images = _states(pictures, denoiser.device)
    with torch.inference_mode():
        errors, noised_errors = (
            (guess - images).square().flatten(1).mean(1).cpu().double().numpy()
            for guess in (denoise(denoiser, noised, sigma), noised.clamp(-1, 1))
        )
    share, low, high = mean_interval(errors / noised_errors)
    ends = (None, None) if np.isnan(low) else (low, high)
    timestep = denoiser.schedule.first_as_noisy_as(sigma)
    return Denoising(
        sigma, timestep, len(pictures), float(errors.mean()), float(noised_errors.mean()), share, ends[0], ends[1]
    )


def _released(denoiser: Denoiser, picture: Picture, sigma: float) -> Tensor:
    """Return y = x + N(0, sigma^2 I) of one image, always the same: [1, C, H, W] in the model's units."""
    noise = Noise(seed=0, stage="selection", image=picture.number, sigma=sigma, device=denoiser.device)
    subject = Subject(torch.from_numpy(picture.pixels), torch.zeros(1, dtype=torch.int64), noise)
    return release(denoiser.schedule, subject, sigma).y


def record(found: Sequence[Accuracy | Denoising]) -> list[dict[str, Any]]:
    """Return what was found, for a file."""
    return [asdict(one) for one in found]
