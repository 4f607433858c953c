"""The Gaussian-DP privacy filter of guided denoising: Proposition 3.1 and Algorithm 1 of the paper.

Everything is per coordinate (channel x height x width) and per trajectory, in float64, in the model's units.
An adversary who moves coordinate i of the image by r_i (in [0, 1] units) moves it by 2 r_i for the model, so
the squared budget per unit of change is mu^2 = 1 / (2 sigma)^2. The paper's Algorithm 2 writes
``Lambda <- mu``; its proof of Proposition 3.2 needs mu^2, and that is what is used here.
"""

import torch
from torch import Tensor

from adds.diffusion.checks import require
from adds.diffusion.schedule import model_sigma

SLIVER = 1e-5
"""The share of the budget that is never spent. It pays for rounding, of the account and of guided steps alike."""


MIN_STD = 0.005
"""Noise below this doesn't count as noise: the rounding of a guided step could weigh too much against it.

`covered_radius` has the bound. At this value, 3 x 256 x 256 images and 20 steps, the sliver pays for all rounding in
every certificate with a radius of sigma / 1000 or more. (The nominal noise of a 20-step grid is 0.07 and more.)
"""


ROUNDINGS = 40
"""A guided mean is off by less than so many units of 2^-53, whatever the image: 9, and 31 for the size of the state."""


def held_back() -> float:
    """Return the share of mu^2 that no coordinate spends: the sliver, less the last scale's rounding to float32."""
    return SLIVER - 2.0**-22


def rounding_loss(*, coordinates: int, steps: int, std: float) -> float:
    """Return by how much rounding can set apart the trajectories of two images, in standard deviations of their noise.

    Two computed means lie farther apart than the exact ones by 2 ROUNDINGS 2^-53 at most, in every coordinate of every
    guided step; in units of the noise and as a length, 2 ROUNDINGS 2^-53 sqrt(coordinates steps) / std.
    """
    return float(2 * ROUNDINGS * 2.0**-53 * (coordinates * steps) ** 0.5 / std)


def covered_radius(*, coordinates: int, steps: int, std: float) -> float:
    """Return the least radius, in units of sigma, whose certificate has its rounding paid for by what is held back.

    A change of r sets trajectories apart by at most sqrt(1 - h) r / sigma + loss, with h held back, and that is no more
    than r / sigma from r / sigma = 2 loss / h upwards.
    """
    return 2 * rounding_loss(coordinates=coordinates, steps=steps, std=std) / held_back()


class BudgetExceededError(RuntimeError):
    """A trajectory spent more than its privacy budget: its certificate would be false."""


def squared_budget(sigma: float) -> float:
    """mu^2 = 1 / (2 sigma)^2: what a coordinate may spend in all, for sigma in [0, 1] pixel units."""
    if not sigma > 0:
        raise ValueError(f"sigma is {sigma}: it must be positive")
    return 1.0 / model_sigma(sigma) ** 2


def unit_cost(*, coef_x0: float, std: Tensor) -> Tensor:
    """Cost of a guided step at scale s = 1 (Proposition 3.1, for r_i = 1 and s = 1).

        mu_{t,i}^2 / s^2 = abar_{t-1} (1 - alpha_t)^2 / ((1 - abar_t)^2 sigma_{t,i}^2)

    with ``coef_x0 = sqrt(abar_{t-1}) (1 - alpha_t) / (1 - abar_t)``. ``std`` must be the very tensor that the
    step's noise is multiplied with. No noise costs infinitely much.
    """
    return (coef_x0 / std.double()).square()


def affordable_scale(*, budget: Tensor, unit_cost: Tensor, scale: float) -> Tensor:
    """Return the largest scale that ``budget`` pays for, sqrt(budget / unit_cost), but at most ``scale``."""
    affordable = torch.sqrt(budget / unit_cost).clamp(max=scale)
    return torch.where(budget > 0, affordable, 0.0)


class PrivacyFilter:
    """Algorithm 1 (PrivacyFilter) for a batch of trajectories: the budget left and the ledger of what was spent.

    Both tensors have the shape of the states, [trajectories, C, H, W]. They are kept apart on purpose: the
    ledger adds up what each step really cost and doesn't know what the filter meant to allow.
    """

    def __init__(self, *, sigma: float, shape: tuple[int, ...], device: torch.device | str = "cpu") -> None:
        self.squared_budget = squared_budget(sigma)
        allowance = self.squared_budget * (1 - SLIVER)
        self.budget = torch.full(shape, allowance, dtype=torch.float64, device=device)
        self.spent = torch.zeros(shape, dtype=torch.float64, device=device)
        self.shares = torch.zeros(shape[0], dtype=torch.float64, device=device)
        """The largest share of mu^2 that a coordinate of each trajectory has spent so far."""

    def spend(self, *, scale: float, coef_x0: float, std: Tensor) -> Tensor:
        """Pay for one guided step and return the scale that each coordinate may use (float32).

        A coordinate that can't pay for ``scale`` uses the largest scale that it can pay for, and has then
        spent its budget. Where the step adds no noise to speak of, the coordinate isn't guided and
        keeps its budget.
        """
        if not 0 <= scale <= 1:
            raise ValueError(f"guidance scale is {scale}: it must be in [0, 1]")
        require(std >= 0, lambda: ValueError("std has a negative or NaN entry: the denoiser's variance is broken"))
        price = unit_cost(coef_x0=coef_x0, std=torch.where(std >= MIN_STD, std, 0.0))
        used = affordable_scale(budget=self.budget, unit_cost=price, scale=scale).float()
        cost = torch.where(used > 0, used.double().square() * price, 0.0)
        left = (self.budget - cost).clamp(min=0)
        spends_the_rest = torch.isfinite(price) & (self.budget < scale**2 * price)
        self.budget = torch.where(spends_the_rest, 0.0, left)
        self.spent += cost
        self.check()
        return used

    def exhausted(self) -> Tensor:
        """Tell for each trajectory whether every coordinate has spent its budget: bool [trajectories]."""
        return (self.budget == 0).flatten(1).all(dim=1)

    def spent_shares(self) -> Tensor:
        """Return for each trajectory the share of coordinates that have spent their budget: float32 [trajectories]."""
        return (self.budget == 0).flatten(1).float().mean(dim=1)

    def check(self) -> None:
        """Stop where a coordinate spent more than mu^2."""
        budget = self.squared_budget
        self.shares = shares = self.spent.flatten(1).amax(dim=1) / budget
        require(
            shares <= 1,
            lambda: BudgetExceededError(
                f"a coordinate spent {float(shares.max()):.9f} of its privacy budget mu^2 = {budget}:"
                " the guarantee of ADDS would not hold, so no result is written"
            ),
        )

    def keep(self, kept: Tensor) -> None:
        """Keep only the trajectories at these positions: the others have left the batch."""
        self.budget, self.spent, self.shares = self.budget[kept], self.spent[kept], self.shares[kept]
