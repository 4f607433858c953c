"""How many samples sequential sampling is going to need: simulated, for images with known or assumed probabilities.

Where a setting has counts, its images are those. Else they are made up so that they agree with the paper's two tables:
of its images the share that Table 1 certifies has p_label above one half, the share that Table 2 counts as right has
the label on top. That leaves the shape of the distribution open, so that several are tried, and the range is told.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri
from scipy.stats import beta

from adds.experiment import Experiment, Setting
from adds.sampling.job import SETTING
from adds.sampling.stopping import Rule, SampleSize, Stop

Floats = NDArray[np.float64]

CERTIFIED_ABOVE = 0.5156
"""The share that Clopper and Pearson's bound needs at n = 10,000 and alpha = 0.001 to be above one half."""

PARTS = (0.25, 0.4, 0.6)
"""Which part of what the label leaves its best rival has, in the median image."""
SPREADS = (0.0, 1.0)
"""By how much the logit of that part differs between images."""

SIMULATED = 80
"""Images per setting and shape."""
CLASSES = 20
"""Of a made-up image, beside its label."""

MOST_PADDING = 0.1
"""The share of padding above which a run's settings are warned of."""

NETWORKS = {"diffusion": "diffusion model", "classifier": "classifier"}
"""The kinds of networks as configured, by what they are called: readers of noised images are classifiers too."""

LOOKS_GROW = 1.04
"""Beyond the first looks the simulation skips some, so it may stop up to so many times later than the run."""


@dataclass(frozen=True)
class Crowd:
    """Images as the simulation knows them: the label's probability, and the best rival's."""

    label: Floats
    rival: Floats

    def __len__(self) -> int:
        return len(self.label)


def from_counts(counts: pd.DataFrame) -> Crowd:
    """Return the images of one setting with the shares that were counted; the top class stands for a missing label."""
    labels, rivals = [], []
    for row in counts.itertuples():
        found = np.add(row.counts_selection, row.counts_estimation) + 0.0
        label = int(found.argmax()) if pd.isna(row.label) else int(row.label)
        shares = (found + 0.5 / len(found)) / (found.sum() + 0.5)
        labels.append(shares[label])
        rivals.append(np.delete(shares, label).max())
    return Crowd(np.array(labels), np.array(rivals))


@cache
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


def _looks(every: int, most: int) -> Iterator[int]:
    """Yield at which numbers of samples to look: as the run does at first, then at a part of its looks."""
    n = every
    while n < most:
        yield n
        n = min(most, max(n + every, every * round(n * LOOKS_GROW / every)))
    yield most


def _draw(rule: Rule, shares: Floats, *, every: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw until the rule stops; return the counts."""
    counts = np.zeros(len(shares), dtype=np.int64)
    for look in _looks(every, most):
        counts += rng.multinomial(look - int(counts.sum()), shares)
        if rule(counts) is not None:
            break
    return counts


def shares_of(label: float, rival: float) -> Floats:
    """Return class probabilities: the label's, and others that each have the same part of what those before leave."""
    part = min(rival / (1 - label), 1.0)
    others = rival * (1 - part) ** np.arange(CLASSES)
    found = np.array([label, *others])
    return np.asarray(found / found.sum())


def samples_needed(crowd: Crowd, size: SampleSize, *, sigma: float, chunk: int, seed: int = 0) -> NDArray[np.int64]:
    """Simulate sequential sampling of every image; return how many samples each takes, selection and estimation."""
    rng = np.random.default_rng(seed)
    found = []
    for label, rival in zip(crowd.label, crowd.rival, strict=True):
        shares, selected, about = shares_of(label, rival), 0, 0
        if not size.asks_label:
            every = size.selection_look(chunk)
            counts = _draw(size.selection_rule(), shares, every=every, most=size.n0, rng=rng)
            selected, about = int(counts.sum()), int(counts.argmax())
        counts = _draw(size.estimation_rule(about, sigma), shares, every=chunk, most=size.n, rng=rng)
        found.append(selected + int(counts.sum()))
    return np.array(found)


def crowds_of(
    experiment: Experiment, counts: pd.DataFrame, paper: pd.DataFrame, *, part: float, spread: float
) -> dict[Setting, Crowd]:
    """Return the images of every setting, from its counts or from the paper's tables; none where there is neither."""
    found = {}
    for setting in experiment.settings():
        key = [setting.method, float(setting.sigma), setting.votes]
        counted = counts[(counts[SETTING] == key).all(axis=1)] if len(counts) else counts
        told = paper[(paper[SETTING] == key).all(axis=1)] if len(paper) else paper
        if len(counted):
            found[setting] = from_counts(counted)
        elif len(told):
            certified, right = told.iloc[0][["certified_accuracy", "clean_accuracy"]].astype(float) / 100
            found[setting] = from_tables(certified, right, part=part, spread=spread, images=SIMULATED)
    return found


def expected_samples(
    experiment: Experiment, size: SampleSize, counts: pd.DataFrame, paper: pd.DataFrame
) -> pd.DataFrame:
    """Return per shape and setting the mean number of samples per image: ``alone``, and ``drawn`` beyond the leader's.

    Images of two settings are taken to be easy and hard in the same order.
    """
    chunk, rows = experiment.config["sampling"]["chunk_size"], []
    for part in PARTS:
        for spread in SPREADS:
            crowds = crowds_of(experiment, counts, paper, part=part, spread=spread)
            needed = {
                setting: samples_needed(crowd, size, sigma=float(setting.sigma), chunk=chunk)
                for setting, crowd in crowds.items()
            }
            for setting, samples in needed.items():
                leaders = needed.get(experiment.leader(setting), samples)
                on_record = leaders if experiment.leader(setting) != setting and len(leaders) == len(samples) else 0
                drawn = np.maximum(samples - on_record, 0).mean()
                key = {"method": setting.method, "sigma": float(setting.sigma), "votes": setting.votes}
                rows.append({"part": part, "spread": spread, **key, "alone": samples.mean(), "drawn": drawn})
    return pd.DataFrame(rows)


def _requests(samples: int, at_a_time: int) -> list[int]:
    """Return how many samples are asked for, one request after the other."""
    whole, rest = divmod(samples, at_a_time)
    return [at_a_time] * whole + ([rest] if rest else [])


def expected_padding(plan: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, float]:
    """Return which share of each used network's work will be padding, with one evaluation a sample, in a full job.

    Images go side by side, as many as it takes for their requests to make what is drawn at once
    (`adds.sampling.counting.side_by_side`), and the last ones with as many as are left. Sequential sampling is taken to
    end at the first look.

    Left out are votes that only undecided samples cast, and guided trajectories that leave their batch: how many there
    are depends on the images, and methods that have them have more padding than this.
    """
    chunk = machine["chunk_size"]
    stop = Stop((), plan["at_least"]) if plan["mode"] == "sequential" else None
    size = SampleSize(plan["n0"], plan["n"], stop=stop)
    select = _requests(size.n0, size.selection_look(chunk))
    requests = select + _requests(size.n, chunk) if stop is None else [*select[:1], size.in_any_case(chunk)]
    images = max(plan["shards"].values())
    together = min(images, -(-machine["at_once"] // requests[0]))
    groups = [together] * (images // together) + ([images % together] if images % together else [])
    rows = [group * request for group in groups for request in requests]
    networks = {network for entry in plan["settings"] for network in entry["folders"]}
    used = {network if network in NETWORKS else "classifier" for network in networks}
    batches = {name: machine["batch_size"][name] for name in NETWORKS if name in used}
    return {name: 1 - sum(rows) / sum(-(-row // batch) * batch for row in rows) for name, batch in batches.items()}


def padding_warning(plan: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Say that much of the work will be padding, and what to do; nothing where it isn't."""
    network, share = max(expected_padding(plan, machine).items(), key=lambda found: found[1])
    if share <= MOST_PADDING:
        return ""
    return (
        f"about {100 * share:.0f}% of the {NETWORKS[network]}'s work will be padding: lower {network}.batch_size "
        f"({machine['batch_size'][network]}), or raise images_per_job ({max(plan['shards'].values())}) or "
        f"sampling.chunk_size ({machine['chunk_size']})"
    )
