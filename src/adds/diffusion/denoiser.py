"""A network that predicts noise and variance, evaluated on a grid of timesteps."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from adds.diffusion.batching import Batches
from adds.diffusion.checks import require
from adds.diffusion.schedule import Grid, Schedule

Network = Callable[[Tensor, Tensor], Tensor]
"""Maps states [n, C, H, W] and timesteps of the original process [n] to [n, 2C, H, W]: noise and variance."""


@dataclass(frozen=True)
class Prediction:
    """What one evaluation says of a step: the clipped x0 and the standard deviation of the step's noise."""

    x0: Tensor
    std: Tensor


class Denoiser:
    """Evaluates the network in batches (see `Batches`) and counts the evaluations.

    With ``rescale_timesteps`` the network sees timesteps as if there were 1000, as checkpoints that were trained with
    guided_diffusion's option of that name expect.
    """

    def __init__(
        self,
        network: Network,
        schedule: Schedule,
        *,
        batch_size: int = 64,
        device: torch.device | str = "cpu",
        rescale_timesteps: bool = False,
    ) -> None:
        self.network = network
        self.schedule = schedule
        self.batches = Batches(batch_size)
        self.device = torch.device(device)
        self.rescale_timesteps = rescale_timesteps
        self.evaluations = 0

    def predict(self, x_t: Tensor, grid: Grid, step: int) -> Prediction:
        """Predict x0 = (x_t - sqrt(1 - abar_t) eps) / sqrt(abar_t), clipped to [-1, 1], and the step's std.

        The variance is interpolated between the grid's two ends by the network, without a clamp, and is
        exactly zero at step 0, where the chain ends. Of no states there is nothing to predict.
        """
        if len(x_t) == 0:
            return Prediction(x0=x_t, std=x_t)
        self.evaluations += len(x_t)
        timestep = grid.timesteps[step] * (1000 / len(self.schedule) if self.rescale_timesteps else 1.0)

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
        require(
            torch.isfinite(x0).all() & torch.isfinite(std).all(),
            lambda: FloatingPointError(
                f"the diffusion model gave NaN or infinity at timestep {grid.timesteps[step]}: "
                "its weights are broken, or half precision overflowed"
            ),
        )
        return Prediction(x0=x0, std=std)
