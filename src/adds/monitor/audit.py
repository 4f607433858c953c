"""The audit of ADDS: whether the guided steps that were taken are, all together, one sample of N(x, sigma^2 I).

A guided step x_{t-1} = c0 ((1 - s) x0 + s x) + c1 x_t + std z is a noisy look at the image x: with the cost
lambda = (c0 s / std)^2 that the privacy filter charges for it,

    dW = (c0 s / std^2) (x_{t-1} - c1 x_t - c0 (1 - s) x0) = lambda x + sqrt(lambda) z.

Where costs add up to mu^2 = 1 / (2 sigma)^2, W / mu^2 is the *release* y = x + N(0, (2 sigma)^2 I), exactly;
docs/smoothing.md has the proof. A certificate claims nothing else of guidance, so this is what is tested: on networks
as they are, from steps as they were recorded, against what was charged for them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from adds.data.images import Picture
from adds.diffusion.noise import Noise
from adds.diffusion.schedule import Grid
from adds.machine.logs import progress_bar
from adds.methods.adds import GuidedStep, guide
from adds.methods.base import Query
from adds.methods.release import Subject
from adds.models.pipeline import Pipeline

Values = NDArray[np.float64]

FALSE_ALARMS = 0.001
"""How often the audit of sound code fails, over all its checks together."""

POWER = 0.99
"""How often the wrong variance that is stated as noticeable is noticed."""

TRAJECTORIES, IMAGES = 400, 4
"""What a user's audit takes at every sigma: trajectories in all, shared by the first images of the list."""

AT_ONCE = 100
"""Trajectories that are guided together."""

TOO_LITTLE = 1e-6
"""Noise that is lost in the rounding of float32 states, from which no z can be recovered."""


class Recovery:
    """Adds up what recorded steps tell of the image x, W, and what was charged for it, per trajectory and coordinate.

    ``first`` is the number of the first sample. A coordinate that is guided without noise tells infinitely much.
    """

    def __init__(self, grid: Grid, x: Tensor, trajectories: int, *, first: int = 0) -> None:
        self._grid, self._first, self._x = grid, first, x
        self.told = x.new_zeros((trajectories, *x.shape))
        self.charged = x.new_zeros((trajectories, *x.shape))
        self.along_pull, self.pull = x.new_zeros(trajectories), x.new_zeros(trajectories)
        """Of each trajectory, the sums of z p and p^2 for p = c0 (x - x0), where guidance pulls: see `_pull`."""

    def observe(self, step: GuidedStep) -> None:
        """Add dW of one step; take the charge from the privacy filter's own account."""
        c0, c1 = float(self._grid.coef_x0[step.step]), float(self._grid.coef_xt[step.step])
        scale, std, x0 = step.scale.double(), step.std.double(), step.x0.double()
        seen = step.x_prev.double() - c1 * step.x_t.double() - c0 * (1 - scale) * x0
        rows = step.samples - self._first
        self.told[rows] += torch.where(scale > 0, c0 * scale / std.square() * seen, 0.0)
        self.charged[rows] = step.spent
        pull = torch.where(std > TOO_LITTLE, c0 * (self._x - x0), 0.0)
        z = torch.where(std > TOO_LITTLE, (seen - c0 * scale * self._x) / std, 0.0)
        self.along_pull[rows] += (z * pull).flatten(1).sum(1)
        self.pull[rows] += pull.square().flatten(1).sum(1)

    def release(self, budget: float, normal: Tensor) -> Tensor:
        """Return y. Budget that was left is spent on one more look at x, with the noise ``normal``.

        Without it, y would be normal only given how much was left, which may depend on all that was seen before. Where
        more than the budget was charged, y is what the charge would mean.
        """
        rest = (budget - self.charged).clamp(min=0)
        return (self.told + rest * self._x + rest.sqrt() * normal) / (self.charged + rest)


@dataclass(frozen=True)
class Errors:
    """(y - x) / (2 sigma) of trajectories at one sigma, [trajectories, coordinates]: N(0, I) where all is well.

    ``images`` has each trajectory's x, ``along_pull`` and ``pull`` are those of `Recovery`, and ``share`` is the mean
    share of the budget that was charged: the rest of y is the audit's own.
    """

    sigma: float
    values: Values
    images: Values
    along_pull: Values
    pull: Values
    share: float


def recovered_errors(
    pipeline: Pipeline,
    pictures: Sequence[Picture],
    *,
    sigma: float,
    guidance_scale: float,
    seed: int,
    trajectories: int,
) -> Errors:
    """Guide as certification does, with its noise, and return how far each trajectory's release is from its image.

    Images share the trajectories evenly. Units are written out here: the audit takes none from the code that it checks.
    """
    budget, device = (0.5 / sigma) ** 2, pipeline.denoiser.device
    found = []
    shares_of = np.array_split(np.arange(trajectories), len(pictures))
    bar = progress_bar(pictures, desc=f"sigma {sigma:g}", unit="image")
    for picture, own in zip(bar, shares_of, strict=True):
        noise = Noise(seed=seed, stage="selection", image=picture.number, sigma=sigma, device=device)
        query, image = Query(sigma, guidance_scale=guidance_scale), torch.as_tensor(picture.pixels)
        x = image.double().to(device) * 2 - 1
        for first in range(0, len(own), AT_ONCE):
            samples = torch.arange(first, min(first + AT_ONCE, len(own)), device=device)
            recovery = Recovery(pipeline.grid, x, len(samples), first=first)
            guide(pipeline, query, Subject(image, samples, noise), recovery.observe)
            after_all = len(pipeline.denoiser.schedule) + 1  # no step's noise has this timestep
            normal = noise.normal(tuple(x.shape), samples=samples, timestep=after_all).double()
            error = (recovery.release(budget, normal) - x) / (2 * sigma)
            share = (recovery.charged / budget).flatten(1).mean(1)
            parts = (error, x.expand_as(error), recovery.along_pull[:, None], recovery.pull[:, None], share[:, None])
            found.append([part.flatten(1).cpu().numpy() for part in parts])
    values, images, along_pull, pull, shares = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Errors(sigma, values, images, along_pull.ravel(), pull.ravel(), float(shares.mean()))


@dataclass(frozen=True)
class Check:
    """A test that the errors at one sigma passed with a p-value: how often sound code looks no better."""

    sigma: float
    name: str
    statistic: float
    p: float


def _mean(errors: Errors) -> tuple[float, float]:
    """Test the mean: n sum_i mean_i^2 is chi-squared with a degree per coordinate i; shown is it per degree."""
    n, d = errors.values.shape
    statistic = float(n * np.square(errors.values.mean(axis=0)).sum())
    return statistic / d, float(stats.chi2.sf(statistic, d))


def _image(errors: Errors) -> tuple[float, float]:
    """Test that y has no more and no less of x than x: the errors' component along their images is standard normal."""
    length = max(float(np.linalg.norm(errors.images)), 1e-9)
    statistic = float((errors.values * errors.images).sum()) / length
    return statistic, float(2 * stats.norm.sf(abs(statistic)))


def _pull(errors: Errors) -> tuple[float, float]:
    """Test that a step's noise z is independent of where guidance pulls: p = c0 (x - x0), known before z is drawn.

    So sum z p is a martingale, over steps, coordinates and trajectories, and sum z p / sqrt(sum p^2) is standard normal
    for many trajectories. It is far from that where the image was mixed in by another scale than the recorded one, also
    by coordinates that had no budget left.
    """
    statistic = float(errors.along_pull.sum() / np.sqrt(max(errors.pull.sum(), 1e-30)))
    return statistic, float(2 * stats.norm.sf(abs(statistic)))


def _two_sided(statistic: Values, degrees: int) -> Values:
    tails = np.minimum(stats.chi2.cdf(statistic, degrees), stats.chi2.sf(statistic, degrees))
    return np.asarray(np.minimum(2 * tails, 1.0), dtype=np.float64)


def _variance(errors: Errors) -> tuple[float, float]:
    """Test the variance: the sum of all squares is chi-squared; shown is their mean, to be 1."""
    total = np.square(errors.values).sum()
    return float(total / errors.values.size), float(_two_sided(total, errors.values.size))


def _coordinate(errors: Errors) -> tuple[float, float]:
    """Test every coordinate's variance by its sum of squares; shown is the least likely of them."""
    n, d = errors.values.shape
    squares = np.square(errors.values).sum(axis=0)
    p = _two_sided(squares, n)
    worst = int(p.argmin())
    return float(squares[worst] / n), float(-np.expm1(d * np.log1p(-min(p[worst], 1 - 1e-12))))


def _normality(errors: Errors) -> tuple[float, float]:
    """Test normality by Kolmogorov and Smirnov's distance of all errors from the normal distribution."""
    found = stats.kstest(errors.values.ravel(), stats.norm.cdf, method="asymp")
    return float(found.statistic), float(found.pvalue)


def _length(errors: Errors) -> tuple[float, float]:
    """Test that coordinates don't err together in size: the trajectories' squared lengths are chi-squared, each."""
    n, d = errors.values.shape
    found = stats.kstest(
        np.square(errors.values).sum(axis=1), stats.chi2(d).cdf, method="exact" if n < 2000 else "asymp"
    )
    return float(found.statistic), float(found.pvalue)


def _independence(errors: Errors) -> tuple[float, float]:
    """Test independence: sum (e_k . e_l)^2 over pairs is large where coordinates, or trajectories, are correlated.

    For N(0, I) in d dimensions a pair has mean d and variance 2 d^2 + 6 d, and pairs that share a trajectory have
    covariance 2 d. The standardised sum is normal for many pairs.
    """
    n, d = errors.values.shape
    pairs = n * (n - 1) / 2
    products = errors.values @ errors.values.T
    total = (np.square(products).sum() - np.square(np.diagonal(products)).sum()) / 2
    spread = np.sqrt(pairs * (2.0 * d * d + 6 * d + 4 * (n - 2) * d))
    statistic = float((total - pairs * d) / spread)
    return statistic, float(2 * stats.norm.sf(abs(statistic)))


CHECKS: dict[str, Callable[[Errors], tuple[float, float]]] = {
    "mean": _mean,
    "mean along the image": _image,
    "mean along the pull": _pull,
    "variance": _variance,
    "worst coordinate": _coordinate,
    "normality": _normality,
    "lengths": _length,
    "independence": _independence,
}
"""What is tested of the errors at every sigma: each gives a statistic and a p-value."""


def check(errors: Errors) -> list[Check]:
    """Run every check. Errors that are no numbers, as of a step that is guided without noise, fail all of them."""
    if not (np.isfinite(errors.values).all() and np.isfinite(errors.along_pull).all()):
        return [Check(errors.sigma, name, float("nan"), 0.0) for name in CHECKS]
    return [Check(errors.sigma, name, *test(errors)) for name, test in CHECKS.items()]


def noticeable_variances(errors: Errors, level: float) -> tuple[float, float]:
    """Return the variances of guided noise from which on the check of the variance fails with probability POWER.

    It fails where chi-squared is outside its quantiles at level / 2 and 1 - level / 2. What the audit added itself has
    the right variance, so that only ``share`` of the difference shows.
    """
    chi2 = stats.chi2(errors.values.size)
    low = float(chi2.ppf(level / 2) / chi2.ppf(POWER))
    high = float(chi2.isf(level / 2) / chi2.ppf(1 - POWER))
    share = max(errors.share, 1e-9)
    return max(1 - (1 - low) / share, 0.0), 1 + (high - 1) / share


@dataclass(frozen=True)
class Audit:
    """The checks at all sigmas, together, and what they could have noticed."""

    errors: list[Errors]
    checks: list[Check]

    @classmethod
    def of(cls, errors: Iterable[Errors]) -> "Audit":
        """Check the errors at each sigma."""
        found = list(errors)
        return cls(found, [one for each in found for one in check(each)])

    @property
    def level(self) -> float:
        """Below which a p-value is too small: with so many checks, one of them is so by chance once in 1,000 audits."""
        return FALSE_ALARMS / len(self.checks)

    @property
    def failures(self) -> list[Check]:
        """The checks that failed."""
        return [one for one in self.checks if not one.p >= self.level]

    def table(self) -> str:
        """Return a line for every check."""
        lines = [f"| {'sigma':<6} | {'check':<20} | {'statistic':>10} | {'p':>8} | |", "|---|---|---:|---:|---|"]
        for one in self.checks:
            told = "FAILED" if one in self.failures else "ok"
            lines.append(f"| {one.sigma:<6} | {one.name:<20} | {one.statistic:>10.4f} | {one.p:>8.2g} | {told} |")
        return "\n".join(lines)

    def power(self) -> str:
        """Say for every sigma what it rests on, and the smallest wrong variance that would have been noticed."""
        lines = []
        for each in self.errors:
            low, high = noticeable_variances(each, self.level)
            n, d = each.values.shape
            lines.append(
                f"sigma {each.sigma}: {n} trajectories x {d} coordinates, {100 * each.share:.2f}% of the budget "
                f"charged; noise with a variance of {low:.3f} or less, or {high:.3f} or more, of what was charged for "
                f"would have failed with probability {POWER}"
            )
        return "\n".join(lines)

    def verdict(self) -> str:
        """Say in a line whether guidance kept to its certificate."""
        if not self.failures:
            return (
                f"PASSED: every p-value is at least {self.level:.2g}. What guided steps tell of the image looks like "
                "one sample of N(x, sigma^2 I), as certificates assume. (Sound code fails with 1 seed in 1,000.)"
            )
        named = ", ".join(f"{one.name} at sigma {one.sigma} (p = {one.p:.2g})" for one in self.failures)
        return (
            f"FAILED: {named}. What guided steps tell of the image is not one sample of N(x, sigma^2 I): don't trust "
            "certificates of ADDS from this code and these networks. (Sound code fails with 1 seed in 1,000.)"
        )

    def report(self) -> str:
        """Return all of it."""
        return f"{self.table()}\n\n{self.power()}\n\n{self.verdict()}"
