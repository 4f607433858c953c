"""Which sequential bound to use: samples until p > 1/2 is shown, by several anytime-valid bounds.

Run ``python -m studies.compare_sequential_bounds`` to print the table of docs/statistics.md. All bounds have the same
level and look after every 16 samples, except for Clopper-Pearson, which is given geometrically spaced looks and spends
alpha / (j (j + 1)) on the j-th of them.
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from adds.certificates.binomial import clopper_pearson_lower, log_evidence_above

LOOK_EVERY, MOST = 16, 20_000
FIRST_LOOK, GROWTH = 16, 1.3
PROBABILITIES = (0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.55)

Shown = Callable[[NDArray[np.int64], NDArray[np.int64], float], NDArray[np.bool_]]
"""From successes and trials of one path at all looks: where p > 1/2 is shown at level alpha."""


def truncated_mixture(k: NDArray[np.int64], n: NDArray[np.int64], alpha: float) -> NDArray[np.bool_]:
    """Ours: likelihood ratios mixed uniformly over (1/2, 1]."""
    return np.asarray(log_evidence_above(0.5, k, n) >= -np.log(alpha))


def whole_mixture(k: NDArray[np.int64], n: NDArray[np.int64], alpha: float) -> NDArray[np.bool_]:
    """Robbins's two-sided mixture, uniform over (0, 1)."""
    evidence = betaln(k + 1, n - k + 1) + n * np.log(2)
    return np.asarray((k > n / 2) & (evidence >= -np.log(alpha)))


def betting(k: NDArray[np.int64], n: NDArray[np.int64], alpha: float) -> NDArray[np.bool_]:
    """Bet after each look the Kelly fraction of the estimate so far (with one success and one failure added)."""
    before_k, before_n = np.append(0, k[:-1]), np.append(0, n[:-1])
    estimate = np.clip((before_k + 1) / (before_n + 2), 0.5, 1 - 1e-9)
    wins, losses = np.diff(np.append(0, k)), np.diff(np.append(0, n - k))
    capital = np.cumsum(wins * np.log(2 * estimate) + losses * np.log(2 * (1 - estimate)))
    return np.asarray(capital >= -np.log(alpha))


def split_clopper_pearson(k: NDArray[np.int64], n: NDArray[np.int64], alpha: float) -> NDArray[np.bool_]:
    """Clopper-Pearson at few looks, with the level split between them."""
    shown = np.zeros(len(n), dtype=bool)
    look, number = float(FIRST_LOOK), 1
    while look <= n[-1]:
        position = int(np.searchsorted(n, look))
        level = alpha / (number * (number + 1))
        shown[position] = bool(clopper_pearson_lower(k[position], n[position], level) > 0.5)
        look, number = look * GROWTH, number + 1
    return shown


BOUNDS: dict[str, Shown] = {
    "truncated mixture (ours)": truncated_mixture,
    "whole mixture (Robbins)": whole_mixture,
    "betting, plug-in": betting,
    "Clopper-Pearson, split looks": split_clopper_pearson,
}


def mean_samples(shown: Shown, p: float, *, paths: int, alpha: float, seed: int = 0) -> float:
    """Return the mean number of samples until p > 1/2 is shown; a path that never shows it counts with MOST."""
    rng = np.random.default_rng(seed)
    trials = np.arange(LOOK_EVERY, MOST + 1, LOOK_EVERY)
    total = 0
    for _ in range(paths):
        successes = rng.binomial(LOOK_EVERY, p, size=len(trials)).cumsum()
        found = np.flatnonzero(shown(successes, trials, alpha))
        total += int(trials[found[0]]) if len(found) else MOST
    return total / paths


def table(paths: int, alpha: float) -> str:
    """Return the Markdown table of all bounds and probabilities."""
    lines = ["| p | " + " | ".join(BOUNDS) + " |", "|---" * (len(BOUNDS) + 1) + "|"]
    for p in PROBABILITIES:
        means = [mean_samples(shown, p, paths=paths, alpha=alpha) for shown in BOUNDS.values()]
        lines.append(f"| {p:g} | " + " | ".join(f"{mean:.0f}" for mean in means) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=400)
    parser.add_argument("--alpha", type=float, default=0.0005, help="level of the lower end: half of 0.001")
    print(table(**vars(parser.parse_args())))
