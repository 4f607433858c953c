"""How many samples sequential sampling is going to need: simulated, for images with known or assumed probabilities.

Where a setting has counts, its images are those. Else they are made up so that they agree with the paper's two tables:
of its images the share that Table 1 certifies has p_label above one half, the share that Table 2 counts as right has
the label on top. That leaves the shape of the distribution open, so that several are tried, and the range is told.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri
from scipy.stats import beta

from adds.sampling.stopping import Rule, SampleSize

Floats = NDArray[np.float64]

CERTIFIED_ABOVE = 0.5156
"""The share that Clopper and Pearson's bound needs at n = 10,000 and alpha = 0.001 to be above one half."""

PARTS = (0.25, 0.4, 0.6)
"""Which part of what the label leaves its best rival has, in the median image."""
SPREADS = (0.0, 1.0)
"""By how much the logit of that part differs between images."""

LOOKS_GROW = 1.04
"""Beyond the first looks the simulation skips some: it may stop so much later than the run would."""


@dataclass(frozen=True)
class Crowd:
    """Images as the simulation knows them: the label's probability, and the best rival's."""

    label: Floats
    rival: Floats

    def __len__(self) -> int:
        return len(self.label)


def from_counts(counts: pd.DataFrame) -> Crowd:
    """Return the images of one setting with the shares that were counted; without labels the top class stands for it."""
    labels, rivals = [], []
    for row in counts.itertuples():
        found = np.add(row.counts_selection, row.counts_estimation) + 0.0
        label = int(found.argmax()) if pd.isna(row.label) else int(row.label)
        shares = (found + 0.5 / len(found)) / (found.sum() + 0.5)
        labels.append(shares[label])
        rivals.append(np.delete(shares, label).max())
    return Crowd(np.array(labels), np.array(rivals))


def from_tables(certified: float, right: float, *, part: float, spread: float, images: int) -> Crowd:
    """Return images that agree with the shares ``certified`` and ``right`` (of 1) of the paper's two tables.

    The best rival has a part of what the label leaves: its logit is normal around ``part``'s. p_label is beta
    distributed, with the mean that puts ``certified`` of it above one half (as 10,000 samples tell), and with the
    concentration that puts the label above its rival in ``right`` of the images.
    """
    levels = (np.arange(images) + 0.5) / images
    parts = expit(logit(part) + spread * np.random.default_rng(0).permutation(ndtri(levels)))

    def labels(concentration: float) -> Floats:
        def too_many(mean: float) -> float:
            return float(beta.sf(CERTIFIED_ABOVE, concentration * mean, concentration * (1 - mean))) - certified

        mean = brentq(too_many, 1e-9, 1 - 1e-9)
        found: Floats = beta.isf(levels, concentration * mean, concentration * (1 - mean))
        return np.clip(found, 1e-9, 1 - 1e-9)

    def too_often(log_concentration: float) -> float:
        label = labels(np.exp(log_concentration))
        return float((label > parts * (1 - label)).mean()) - right

    label = labels(np.exp(brentq(too_often, np.log(0.05), np.log(50.0), xtol=1e-3)))
    return Crowd(label, parts * (1 - label))


def _looks(first: int, every: int, most: int) -> Iterator[int]:
    """Yield at which numbers of samples to look: as the run does at first, then at a part of its looks."""
    n = min(first, most)
    while n < most:
        yield n
        n = min(most, max(n + every, every * round(n * LOOKS_GROW / every)))
    yield most


def _samples(
    rule: Rule, shares: Floats, *, every: int, most: int, rng: np.random.Generator
) -> tuple[int, NDArray[np.int64]]:
    """Draw until the rule stops; return how many, and the counts."""
    counts = np.zeros(len(shares), dtype=np.int64)
    for look in _looks(every, every, most):
        counts += rng.multinomial(look - int(counts.sum()), shares)
        if rule(counts) is not None:
            break
    return counts


def shares_of(label: float, rival: float) -> Floats:
    """Return class probabilities: the label, its best rival, and others that are no more probable than the rival."""
    rest = max(1 - label - rival, 0.0)
    others = min(max(int(np.ceil(rest / rival)), 1), 100) if rest > 1e-12 else 1
    return np.array([label, rival, *[rest / others] * others])


def samples_needed(crowd: Crowd, size: SampleSize, *, sigma: float, chunk: int, seed: int = 0) -> NDArray[np.int64]:
    """Simulate sequential sampling of every image; return how many samples each takes, selection and estimation."""
    rng = np.random.default_rng(seed)
    found = []
    for label, rival in zip(crowd.label, crowd.rival, strict=True):
        shares, selected, about = shares_of(label, rival), 0, 0
        shares /= shares.sum()
        if not size.asks_label:
            every = size.selection_look(chunk)
            counts = _draw(size.selection_rule(), shares, every=every, most=size.n0, rng=rng)
            selected, about = int(counts.sum()), int(counts.argmax())
        counts = _draw(size.estimation_rule(about, sigma), shares, every=chunk, most=size.n, rng=rng)
        found.append(selected + int(counts.sum()))
    return np.array(found)


def shapes() -> list[Mapping[str, float]]:
    """Return the shapes of the made-up distributions."""
    return [{"part": part, "spread": spread} for part in PARTS for spread in SPREADS]
