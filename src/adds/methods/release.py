"""The one place where an image is released: y = x + N(0, sigma^2 I), all that a reader ever gets of it.

Whoever is given a `Release` and nothing else is a randomized function of y, so that Cohen et al.'s theorem certifies
it, whatever it does with y (docs/smoothing.md). A `Release` holds no image, and its random numbers refuse those that y
was made with, from which together with y the image could be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adds.diffusion.noise import Noise, sample_ids, stream_of
from adds.diffusion.schedule import Schedule, model_sigma, to_model


@dataclass(frozen=True)
class Subject:
    """Some samples of one image: the image ([C, H, W] in [0, 1]), the samples' numbers, the image's random numbers.

    Or samples of several (`together`): [images, C, H, W], the samples' ids, and a stream of random numbers for each.
    """

    image: Tensor
    samples: Tensor
    noise: Noise

    def __post_init__(self) -> None:
        if self.image.ndim != 3 and (self.image.ndim != 4 or len(self.image) != len(self.noise)):
            raise ValueError(f"image has shape {tuple(self.image.shape)}: it must be [channels, height, width]")
        if not bool(torch.isfinite(self.image).all()):
            raise ValueError("image has NaN or infinite pixels")
        low, high = float(self.image.min()), float(self.image.max())
        if low < 0 or high > 1:
            raise ValueError(f"image has values from {low} to {high}: they must be in [0, 1]")

    @classmethod
    def together(cls, subjects: "Sequence[Subject]") -> "Subject":
        """Join the samples of several images, in this order, so that networks evaluate them in the same batches."""
        if len(subjects) == 1:
            return subjects[0]
        return cls(
            torch.stack([subject.image for subject in subjects]),
            torch.cat([sample_ids(subject.samples, stream) for stream, subject in enumerate(subjects)]),
            Noise.together([subject.noise for subject in subjects]),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """An image's shape."""
        return tuple(self.image.shape[-3:])


def image_of(image: Tensor, samples: Tensor) -> Tensor:
    """Return each sample's image, of a subject's one or several: [C, H, W] where there is one, else [n, C, H, W]."""
    return image if image.ndim == 3 else image[stream_of(samples)]


@dataclass(frozen=True)
class Release:
    """A noisy image for every sample ([n, C, H, W] in the model's units), and random numbers to read it with."""

    y: Tensor
    samples: Tensor
    noise: Noise

    def __len__(self) -> int:
        return len(self.samples)


def release(schedule: Schedule, subject: Subject, sigma: float) -> Release:
    """Draw y = x + N(0, sigma^2 I) for every sample; in the model's units x is 2x - 1 and the noise 2 sigma.

    It is computed in float64 and rounded once, so that the rounding is done to the noisy image, not to the image.
    """
    device, samples = subject.noise.device, subject.samples.to(subject.noise.device)
    image = subject.image.to(device).double()
    normal = subject.noise.normal(subject.shape, samples=samples, timestep=len(schedule))
    y = (to_model(image_of(image, samples)) + model_sigma(sigma) * normal.double()).to(normal.dtype)
    return Release(y, samples, subject.noise.beside(len(schedule)))
