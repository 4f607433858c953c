"""The forward diffusion process and its respacing to a grid of timesteps.

Units: images and ``sigma`` live in [0, 1]; the diffusion model works in [-1, 1]. A change of size r in the
first is a change of size 2r in the second, so noise of size ``sigma`` is ``2 * sigma`` to the model.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from guided_diffusion.gaussian_diffusion import get_named_beta_schedule
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

MODEL_UNITS_PER_PIXEL_UNIT = 2.0


def model_sigma(sigma: float) -> float:
    """Convert a noise level or a radius from [0, 1] pixel units into the model's [-1, 1] units."""
    return MODEL_UNITS_PER_PIXEL_UNIT * sigma


def to_model(image: Tensor) -> Tensor:
    """Convert an image from [0, 1] to the model's [-1, 1]."""
    return image * 2 - 1


def from_model(image: Tensor) -> Tensor:
    """Convert an image from the model's [-1, 1] to [0, 1]."""
    return (image + 1) / 2


@dataclass(frozen=True)
class Grid:
    """A reverse process that visits only some timesteps of the original one (the paper's t = T, ..., 1).

    Arrays have one entry per step, in the order of increasing noise: step 0 is the last of the chain. The
    coefficients are those of the *respaced* process: with abar_{t-1} the value of the step before and
    alpha_t = abar_t / abar_{t-1},

        x_{t-1} = coef_x0 * x0 + coef_xt * x_t + N(0, Sigma),
        coef_x0 = sqrt(abar_{t-1}) (1 - alpha_t) / (1 - abar_t),
        coef_xt = (1 - abar_{t-1}) sqrt(alpha_t) / (1 - abar_t).

    ``log_variance_min`` and ``log_variance_max`` are the ends between which the network interpolates Sigma
    (Nichol and Dhariwal): the posterior variance and beta_t.
    """

    timesteps: tuple[int, ...]
    alphas_bar: Array
    coef_x0: Array
    coef_xt: Array
    log_variance_min: Array
    log_variance_max: Array

    def __len__(self) -> int:
        return len(self.timesteps)


@dataclass(frozen=True)
class Schedule:
    """The original forward process q(x_t | x) = N(sqrt(abar_t) x, (1 - abar_t) I), t = 0, ..., T - 1."""

    alphas_bar: Array

    @classmethod
    def named(cls, name: str, timesteps: int) -> "Schedule":
        """Build guided_diffusion's ``linear`` or ``cosine`` schedule."""
        if name not in ("linear", "cosine"):
            raise ValueError(f"schedule {name!r} is not known: choose 'linear' or 'cosine'")
        return cls(np.cumprod(1.0 - get_named_beta_schedule(name, timesteps)))

    def __len__(self) -> int:
        return len(self.alphas_bar)

    def respaced(self, timesteps: Iterable[int]) -> Grid:
        """Keep only the given timesteps of the process."""
        kept = sorted(timesteps)
        self._check(kept)
        alphas_bar = self.alphas_bar[kept]
        alphas_bar_prev = np.append(1.0, alphas_bar[:-1])
        alphas = alphas_bar / alphas_bar_prev
        variance = (1 - alphas) * (1 - alphas_bar_prev) / (1 - alphas_bar)
        # Step 0 adds no noise, but the network's variance is still read there: like guided_diffusion, use
        # the next step's value in place of log 0.
        variance[0] = variance[1] if len(kept) > 1 else 1 - alphas[0]
        return Grid(
            timesteps=tuple(kept),
            alphas_bar=alphas_bar,
            coef_x0=np.sqrt(alphas_bar_prev) * (1 - alphas) / (1 - alphas_bar),
            coef_xt=(1 - alphas_bar_prev) * np.sqrt(alphas) / (1 - alphas_bar),
            log_variance_min=np.log(variance),
            log_variance_max=np.log(1 - alphas),
        )

    def evenly(self, steps: int) -> Grid:
        """Keep so many timesteps, evenly spaced."""
        return self.respaced(evenly_spaced(steps, len(self)))

    def first_as_noisy_as(self, sigma: float, among: Iterable[int] | None = None) -> int:
        """Return t*, the smallest timestep with sqrt((1 - abar_t) / abar_t) >= 2 sigma (sigma in [0, 1]).

        ``among`` restricts the search, for instance to a grid; by default all timesteps count.
        """
        candidates = sorted(range(len(self)) if among is None else among)
        self._check(candidates)
        abar = self.alphas_bar[candidates]
        noisy_enough = np.flatnonzero(np.sqrt((1 - abar) / abar) >= model_sigma(sigma))
        if len(noisy_enough) == 0:
            raise ValueError(
                f"sigma {sigma} is more noise than any of the timesteps up to {candidates[-1]} has: "
                "use a smaller sigma or noisier timesteps"
            )
        return candidates[int(noisy_enough[0])]

    def _check(self, timesteps: list[int]) -> None:
        if not timesteps:
            raise ValueError("timesteps is empty: at least one is needed")
        outside = [t for t in timesteps if not 0 <= t < len(self)]
        if outside:
            raise ValueError(f"timesteps {outside} are not in the schedule: 0 to {len(self) - 1} are")
        if len(set(timesteps)) != len(timesteps):
            raise ValueError(f"timesteps {timesteps} has duplicates")


def evenly_spaced(count: int, total: int) -> tuple[int, ...]:
    """Return ``count`` timesteps down from the noisiest: 999, 949, ..., 49 for 20 of 1000."""
    if count < 1 or total % count:
        raise ValueError(f"{count} steps don't divide the {total} timesteps of the schedule evenly")
    stride = total // count
    return tuple(range(total - 1, -1, -stride))
