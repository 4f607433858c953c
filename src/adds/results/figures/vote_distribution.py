"""How voting moves the class counts: for images that it changes, the counts at 1 and at K votes side by side."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from adds.results.accuracy import is_certified
from adds.results.figures.style import TEXT_WIDTH

LABELS = 10
METHOD = "adds"


def changed_images(certified: pd.DataFrame, many: int, limit: int) -> list[int]:
    """Return images whose correctness or certification differs between 1 and ``many`` votes at some sigma.

    Those that change at more sigmas, and by more radius, come first. Where voting changes none, the images
    with the largest change of radius stand in.
    """
    chosen = certified[certified["method"] == METHOD].assign(certified=is_certified(certified))
    chosen["correct"] = chosen["correct"].astype("boolean").fillna(True)
    wide = chosen.pivot(index=["number", "sigma"], columns="votes", values=["correct", "certified", "radius"])
    one, more = wide.xs(1, axis=1, level="votes"), wide.xs(many, axis=1, level="votes")
    changed = (one["correct"] != more["correct"]) | (one["certified"] != more["certified"])
    moved = (one["radius"] - more["radius"]).astype(float).abs()
    score = pd.DataFrame({"changed": changed.astype(int), "moved": moved}).groupby("number").sum()
    ranked = score.sort_values(["changed", "moved"], ascending=False, kind="stable")
    some = ranked[ranked["changed"] > 0]
    return [int(number) for number in (some if len(some) else ranked).index[:limit]]


def shares(
    counts: pd.DataFrame, certified: pd.DataFrame, classes: dict[int, str], many: int, limit: int
) -> pd.DataFrame:
    """Return for each chosen image, sigma and vote count the shares of its most frequent labels."""
    chosen = counts[(counts["method"] == METHOD) & counts["votes"].isin([1, many])]
    verdicts = certified.set_index(["method", "sigma", "votes", "number"])
    rows = []
    for number in changed_images(certified, many, limit):
        for sigma, group in chosen[chosen["number"] == number].groupby("sigma"):
            by_votes = {row.votes: np.array(row.counts_estimation) for row in group.itertuples()}
            pooled = sum(count / count.sum() for count in by_votes.values())
            top = np.argsort(-np.asarray(pooled), kind="stable")[:LABELS]
            truth = group["label"].iloc[0]
            for votes, count in sorted(by_votes.items()):
                verdict = verdicts.loc[(METHOD, sigma, votes, number)]
                for rank, class_ in enumerate(top):
                    rows.append(
                        {
                            "number": number,
                            "sigma": sigma,
                            "votes": votes,
                            "rank": rank,
                            "label": int(class_),
                            "name": classes.get(int(class_), str(class_)),
                            "share": count[class_] / count.sum(),
                            "is_true": not pd.isna(truth) and int(class_) == truth,
                            "is_prediction": int(class_) == verdict["prediction"],
                            "certified": not verdict["abstained"],
                        }
                    )
    return pd.DataFrame(rows)


def _heat(axis: Axes, panel: pd.DataFrame, votes: list[int]) -> None:
    grid = panel.pivot(index="rank", columns="votes", values="share")[votes]
    sns.heatmap(grid, ax=axis, vmin=0, vmax=1, cmap="cividis", cbar=False, xticklabels=False, yticklabels=False)
    axis.set(xlabel="", ylabel="")


def _label(axis: Axes, panel: pd.DataFrame, votes: list[int]) -> None:
    axis.set_axis_on()
    names = panel.drop_duplicates("rank").sort_values("rank")
    axis.set_yticks(names["rank"] + 0.5, [name[:18] for name in names["name"]], rotation=0)
    for tick, true in zip(axis.get_yticklabels(), names["is_true"], strict=True):
        tick.set_color("#d40000" if true else "black")
        tick.set_fontweight("bold" if true else "normal")
    for column, vote in enumerate(votes):
        chosen = panel[(panel["votes"] == vote) & panel["is_prediction"]]
        for row in chosen.itertuples():
            axis.add_patch(
                Rectangle(
                    (column + 0.04, row.rank + 0.04),
                    0.92,
                    0.92,
                    fill=False,
                    edgecolor="#ff3b30",
                    linewidth=1.3,
                    linestyle="-" if row.certified else (0, (2, 1.5)),
                )
            )
    for boundary in range(1, len(votes)):
        axis.axvline(boundary, color="white", linewidth=2)
    axis.set_xticks([])
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def draw(table: pd.DataFrame) -> Figure:
    """Draw `shares`: a row per image, a column per sigma, two columns of heat within each."""
    images = list(dict.fromkeys(table["number"]))
    sigmas = sorted(table["sigma"].unique())
    votes = sorted(table["votes"].unique())
    labels = int(table["rank"].max()) + 1
    figure, axes = plt.subplots(
        len(images),
        len(sigmas),
        figsize=(TEXT_WIDTH, len(images) * 0.115 * labels + 0.9),
        squeeze=False,
    )
    panels = dict(iter(table.groupby(["number", "sigma"])))
    # seaborn draws the whole figure for each of its heat maps, which takes long with labels.
    for axis in axes.flat:
        axis.set_axis_off()
    for row, number in enumerate(images):
        for column, sigma in enumerate(sigmas):
            _heat(axes[row, column], panels[number, sigma], votes)
    for row, number in enumerate(images):
        for column, sigma in enumerate(sigmas):
            axis = axes[row, column]
            _label(axis, panels[number, sigma], votes)
            axis.yaxis.set_tick_params(labelsize=plt.rcParams["font.size"] * 0.62)
            if column == 0:
                axis.set_ylabel(f"image {number}")
            if row == 0:
                axis.set_title(f"$\\sigma$ = {sigma:g}")
        for column in range(len(sigmas)):
            if row == len(images) - 1:
                axes[row, column].set_xticks(
                    np.arange(len(votes)) + 0.5, [f"{vote} vote{'s' if vote > 1 else ''}" for vote in votes]
                )
    heat = axes[0, 0].collections[0]
    colours = figure.colorbar(heat, ax=axes, location="bottom", fraction=0.02, pad=0.01, aspect=50)
    colours.set_label("Share of samples")
    colours.outline.set_visible(False)
    return figure
