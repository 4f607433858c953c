"""Each image's probability of the same outcome under fresh samples: the error that is left when images are the same."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from scipy.stats import betabinom, binom

from adds.sampling.job import KEY, SETTING

Array = NDArray[np.float64]


def majority_again(successes: ArrayLike, trials: ArrayLike, *, n: int, alpha: float) -> Array:
    """Return P(K >= k*) for K of n fresh samples, k* the least count that certifies a majority at alpha.

    K is beta-binomial with parameters k + 1/2 and m - k + 1/2, what k of m samples predict (Jeffreys' prior);
    P(Bin(n, 1/2) >= k*) <= alpha is what `cohen` certifies at r = 0.
    """
    k, m = np.asarray(successes, float), np.asarray(trials, float)
    least = binom.isf(alpha, n, 0.5) + 1
    return np.asarray(betabinom.sf(least - 1, n, k + 0.5, m - k + 0.5))


def leads_again(first: ArrayLike, second: ArrayLike, trials: ArrayLike, *, fresh: int) -> Array:
    """Return the probability that a class with a of m samples is ahead of one with b among ``fresh`` new samples.

    Phi((a - b) f / sqrt(v f (1 + f))) with f = fresh / m and v = a + b - (a - b)^2 / m, a lead's variance over m
    samples: normal around what was seen, which is uncertain too. 1 or 0 where v is 0; 1 where nothing is selected.
    """
    a, b, m = (np.asarray(counts, float) for counts in (first, second, trials))
    if fresh == 0:
        return np.ones_like(a)
    share = fresh / m
    variance = (a + b - (a - b) ** 2 / m) * share * (1 + share)
    found: Array = np.where(
        variance > 0, ndtr((a - b) * share / np.sqrt(np.where(variance > 0, variance, 1.0))), (a > b).astype(float)
    )
    return found


def outcomes_again(counts: pd.DataFrame, *, n0: int, n: int, alpha: float) -> pd.DataFrame:
    """Return each image's probabilities of counting again: KEY, certified_accuracy, clean_accuracy.

    Certified: the label is selected by n0 fresh samples and certified by n. Clean: it leads among all n0 + n.
    """
    rows = []
    for row in counts.itertuples():
        both = np.add(row.counts_selection, row.counts_estimation)
        label = int(row.label)
        rows.append((both[label], np.delete(both, label).max(), both.sum()))
    label_count, other, total = np.array(rows, dtype=float).T
    selected = leads_again(label_count, other, total, fresh=n0)
    return counts[KEY].assign(
        certified_accuracy=selected * majority_again(label_count, total, n=n, alpha=alpha),
        clean_accuracy=leads_again(label_count, other, total, fresh=n0 + n),
    )


def seeds_errors(probabilities: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the standard error of the difference of two runs on the same N images: SETTING, error.

    sqrt(2 sum pi (1 - pi)) / N over the images' probabilities pi: each run sees every image with samples of its own.
    """
    variance = probabilities.assign(variance=probabilities[name] * (1 - probabilities[name]))
    grouped = variance.groupby(SETTING)["variance"]
    return (np.sqrt(2 * grouped.sum()) / grouped.size()).rename("error").reset_index()
