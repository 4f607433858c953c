"""From certificates to what the paper reports: accuracies, intervals and paired differences."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from adds.certificates.binomial import clopper_pearson_lower, clopper_pearson_upper
from adds.sampling.job import KEY, SETTING


def is_certified(certified: pd.DataFrame, radius: float = 0.0) -> "pd.Series[bool]":
    """Tell for each image: prediction right (or not known to be wrong), not abstained, radius >= ``radius``.

    Where an experiment has no labels, what is counted is the share of images that are certified at all.
    """
    right = certified["correct"].astype("boolean").fillna(True).astype(bool)
    return right & ~certified["abstained"] & (certified["radius"] >= radius)


def credited_radius(certified: pd.DataFrame) -> "pd.Series[float]":
    """Return each image's certified radius, 0 where it is wrong or abstained from."""
    return certified["radius"].where(is_certified(certified), 0.0)


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) binomial 95% interval of a share."""
    low = clopper_pearson_lower(successes, trials, 0.025)
    high = clopper_pearson_upper(successes, trials, 0.025)
    return float(low), float(high)


def in_percent(table: pd.DataFrame, shares: Sequence[str], differences: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table whose shares are in percent, their differences in points, as the columns' names say then."""
    names = {name: f"{name}_percent" for name in shares} | {name: f"{name}_points" for name in differences}
    return table.assign(**{name: 100 * table[name] for name in names}).rename(columns=names)


def accuracy_table(right: "pd.Series[bool]", certified: pd.DataFrame) -> pd.DataFrame:
    """Return per setting how many images are right, in percent with the interval.

    Columns: SETTING, images, accuracy_percent, low_percent, high_percent.
    """
    grouped = right.groupby([certified[column] for column in SETTING])
    table = grouped.agg(["sum", "size"]).reset_index()
    intervals = [interval(int(row["sum"]), int(row["size"])) for _, row in table.iterrows()]
    table["accuracy"] = table["sum"] / table["size"]
    table["low"], table["high"] = [low for low, _ in intervals], [high for _, high in intervals]
    return in_percent(table.rename(columns={"size": "images"}).drop(columns="sum"), ["accuracy", "low", "high"])


def accuracy_steps(certified: pd.DataFrame) -> pd.DataFrame:
    """Return certified accuracy as the step function that it is: SETTING, radius, certified_accuracy_percent, images.

    A setting has a row for r = 0 and one for every distinct radius at which it loses images. A row's accuracy is that
    at its radius, and at every radius down to the row before; beyond the last it is 0.
    """
    rows = []
    for setting, group in certified.groupby(SETTING):
        radii = np.sort(group["radius"][is_certified(group)].to_numpy())
        steps = np.unique(np.append(radii, 0.0))
        kept = len(radii) - np.searchsorted(radii, steps, side="left")
        rows += [(*setting, r, 100 * left / len(group), len(group)) for r, left in zip(steps, kept, strict=True)]
    return pd.DataFrame(rows, columns=[*SETTING, "radius", "certified_accuracy_percent", "images"])


def value_at(steps: pd.DataFrame, radii: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the accuracy of one setting's steps at some radii."""
    place = np.searchsorted(steps["radius"].to_numpy(), radii, side="left")
    return np.append(steps["certified_accuracy_percent"].to_numpy(), 0.0)[place]


def true_class_shares(counts: pd.DataFrame) -> pd.DataFrame:
    """Return the share of each image's first estimation samples that fell on its true class: KEY, p_true.

    All of them where their number is fixed. Where sampling stops by looking at the counts, shares of all would be
    biased: an image that happens to start well is stopped early.
    """
    first = counts["counts_first" if "counts_first" in counts else "counts_estimation"]
    shares = [found[label] / sum(found) for found, label in zip(first, counts["label"], strict=True)]
    return counts[KEY].assign(p_true=shares)


def mean_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean and its 95% interval by Student's t."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, float("nan"), float("nan")
    half = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def paired_table(of_images: pd.DataFrame, reference: tuple[str, int]) -> pd.DataFrame:
    """Return the mean probability of the true class (percent), and its paired difference to the reference (points).

    Methods share images and, where they can, random numbers: the difference over images is far less noisy
    than either mean.
    """
    wide = of_images.pivot(index="number", columns=SETTING, values="p_true")
    rows = []
    for method, sigma, votes in wide.columns:
        shares = wide[method, sigma, votes].dropna()
        compared = _against(wide, (method, sigma, votes), reference)
        rows.append((method, sigma, votes, len(shares), *mean_interval(shares.to_numpy()), *compared))
    means, differences = ["mean", "low", "high"], ["difference", "difference_low", "difference_high"]
    table = pd.DataFrame(rows, columns=[*SETTING, "images", *means, *differences])
    return in_percent(table, means, differences)


def _against(
    wide: pd.DataFrame, setting: tuple[str, float, int], reference: tuple[str, int]
) -> tuple[float, float, float]:
    """Return the mean difference to the reference at the same sigma, with its interval, over the images of both."""
    other = wide.get((reference[0], setting[1], reference[1]), pd.Series(dtype=float))
    difference = (wide[setting] - other).dropna().to_numpy()
    return mean_interval(difference) if len(difference) else (np.nan, np.nan, np.nan)


def radius_table(both: pd.DataFrame, reference: tuple[str, int]) -> pd.DataFrame:
    """Return per setting the average certified radius by either bound, and its paired difference to the reference.

    ``both`` holds the certificates of the same counts by ``cohen`` and by ``pair``. An image that is wrong or abstained
    from counts 0. By the paper's bound, ``abstained_percent`` of the images are abstained from, and ``wrong_percent``
    are certified as another class than their label, missing where labels are.
    """
    by_paper = both[both["bound"] == "cohen"]
    labelled = bool(by_paper["correct"].notna().all())
    wrong = ~by_paper["correct"].astype("boolean").fillna(True).astype(bool) & ~by_paper["abstained"]
    shares = by_paper.assign(wrong=wrong).groupby(SETTING)[["abstained", "wrong"]].mean()
    table = pd.DataFrame({"images": by_paper.groupby(SETTING).size()})
    radius = both.assign(radius=credited_radius(both))
    for bound in ("cohen", "pair"):
        wide = radius[radius["bound"] == bound].pivot(index="number", columns=SETTING, values="radius")
        compared = [_against(wide, setting, reference) for setting in table.index]
        table[bound] = wide.mean()
        table[[f"{bound}_difference", f"{bound}_low", f"{bound}_high"]] = compared
    table["abstained"], table["wrong"] = shares["abstained"], shares["wrong"] if labelled else np.nan
    return in_percent(table.reset_index(), ["abstained", "wrong"])


def bounds_table(both: pd.DataFrame) -> pd.DataFrame:
    """Return per setting: certified accuracy at r = 0 (percent) and mean radius by either bound, and clean accuracy.

    ``both`` holds the certificates of the same counts by ``cohen`` and by ``pair``. An image that isn't certified
    rightly counts with radius 0.
    """
    table = both.assign(certified=is_certified(both), radius=credited_radius(both))
    grouped = table.groupby([*SETTING, "bound"])[["certified", "radius", "top_correct"]].mean()
    wide = grouped.unstack("bound")
    found = pd.DataFrame(
        {
            "images": table.groupby(SETTING)["number"].nunique(),
            "cohen": wide["certified", "cohen"],
            "pair": wide["certified", "pair"],
            "clean": wide["top_correct", "cohen"],
            "radius_cohen": wide["radius", "cohen"],
            "radius_pair": wide["radius", "pair"],
        }
    )
    return in_percent(found.reset_index(), ["cohen", "pair", "clean"])
