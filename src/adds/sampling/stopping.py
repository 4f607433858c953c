"""When enough samples have been drawn: at a fixed number, or as soon as the answer is known.

Sequential sampling looks at the counts after every chunk. The certificate is computed from bounds that hold at
all times at once, so no rule of stopping, these or any other, can make it false. Of each image's alpha the bound
on the predicted class from below takes one half, and the bound on the other classes from above the other half;
the selection samples are independent of both. The two bounds that stop sampling for futility, also at alpha / 2
each, decide only when to stop: no certificate rests on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from scipy.special import bdtrc, ndtri

from adds.certificates.binomial import mixture_lower
from adds.certificates.bounds import Counts, runner_up

Rule = Callable[[Counts], str | None]
"""Looks at the counts so far and says why to stop, or None to go on."""

SELECTION_LEVEL = 0.01
"""Selection stops early when the two leading classes differ at this nominal level; nothing rests on it."""


@lru_cache(maxsize=1 << 16)
def _bounds(top: int, other: int, n: int, alpha: float) -> tuple[float, float, float, float]:
    """Return the anytime-valid bounds on the predicted class and on the runner-up: lower, upper, lower, upper.

    An upper bound is the lower bound on the other outcome; all four at once take the time of one.
    """
    bounds = mixture_lower([top, n - top, other, n - other], n, alpha)
    return float(bounds[0]), float(1 - bounds[1]), float(bounds[2]), float(1 - bounds[3])


@dataclass(frozen=True)
class Stop:
    """What sequential sampling waits for, at most until ``n`` samples are drawn.

    ``radii``: it is known for every radius of the list whether the image is certified there.
    ``tolerance``: the certified radius is within ``tolerance`` of the largest that could be certified.
    ``budget``: nothing but the number of samples.
    ``bound`` says by which bound a radius counts as certified.
    """

    rule: Literal["radii", "tolerance", "budget"] = "radii"
    radii: Sequence[float] = field(default=(0.0,))
    tolerance: float = 0.05
    bound: str = "two_sided"

    def __post_init__(self) -> None:
        if self.bound not in ("cohen", "two_sided"):
            raise ValueError(f"stop.bound is {self.bound!r}: sampling can be stopped by cohen or two_sided")
        if self.rule == "radii" and (not self.radii or min(self.radii) < 0):
            raise ValueError(f"stop.radii is {list(self.radii)}: it must list radii >= 0")
        if self.rule == "tolerance" and not self.tolerance > 0:
            raise ValueError(f"stop.tolerance is {self.tolerance}: it must be positive")

    def range(self, counts: Counts, prediction: int, *, sigma: float, alpha: float) -> tuple[float, float]:
        """Return the radius that is certified now, and one that more samples will hardly certify."""
        n, top, other = int(counts.sum()), int(counts[prediction]), int(runner_up(counts, prediction))
        lower, upper, other_lower, other_upper = _bounds(top, other, n, alpha / 2)
        if self.bound == "cohen":
            return float(sigma * ndtri(lower)), float(sigma * ndtri(upper))
        other_upper = min(other_upper, 1 - lower)
        certified = sigma / 2 * (ndtri(lower) - ndtri(other_upper))
        possible = sigma / 2 * (ndtri(upper) - ndtri(other_lower))
        return float(certified), float(possible)

    def reason(self, counts: Counts, prediction: int, *, sigma: float, alpha: float) -> str | None:
        """Say why to stop, or None: 'decided', 'futile' or 'tolerance'."""
        if self.rule == "budget":
            return None
        certified, possible = self.range(counts, prediction, sigma=sigma, alpha=alpha)
        if self.rule == "tolerance":
            if possible <= 0:
                return "futile"
            return "tolerance" if possible - max(certified, 0.0) <= self.tolerance else None
        if possible <= min(self.radii):
            return "futile"
        # Radius 0 asks for a strict lead; any other radius asks for at least that much.
        known = (certified > 0 if r == 0 else certified >= r or possible < r for r in self.radii)
        return "decided" if all(known) else None


@dataclass(frozen=True)
class SampleSize:
    """How many samples select the class (n0) and estimate its probability (n): exactly, or at most."""

    n0: int
    n: int
    alpha: float | None = None
    stop: Stop | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "SampleSize":
        """Build it from the ``sampling`` section of the configuration."""
        stop = Stop(**settings["stop"]) if settings["mode"] == "sequential" else None
        return cls(settings["n0"], settings["n"], settings["alpha"] if stop else None, stop)

    def selection_rule(self) -> Rule:
        """Select with n0 samples; in sequential mode stop earlier when one class clearly leads.

        Any rule is sound here: the estimation samples are independent of what it looks at.
        """

        def rule(counts: Counts) -> str | None:
            if counts.sum() >= self.n0:
                return "fixed" if self.stop is None else "budget"
            if self.stop is None:
                return None
            second, first = (int(count) for count in np.sort(counts)[-2:])
            by_chance = float(bdtrc(first - 1, first + second, 0.5))
            return "decided" if by_chance <= SELECTION_LEVEL else None

        return rule

    def estimation_rule(self, prediction: int, sigma: float) -> Rule:
        """Estimate with n samples; in sequential mode stop earlier when `Stop` says so."""

        def rule(counts: Counts) -> str | None:
            if self.stop is not None and self.alpha is not None:
                reason = self.stop.reason(counts, prediction, sigma=sigma, alpha=self.alpha)
                if reason is not None:
                    return reason
            if counts.sum() >= self.n:
                return "fixed" if self.stop is None else "budget"
            return None

        return rule
