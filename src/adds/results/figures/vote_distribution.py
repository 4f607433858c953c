"""How voting moves the class counts: for images that it changes, the counts at 1 and at K votes side by side."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from adds.certificates.binomial import clopper_pearson_lower
from adds.registry import Stage
from adds.results.accuracy import is_certified
from adds.results.figures.style import RED, TEXT_WIDTH, shorten

LEADING = 4
"""Classes that have a row of their own; all others share one."""
COLUMNS = 3
METHOD = "adds"
OTHERS = "all others"


def changes(certified: pd.DataFrame, many: int) -> pd.DataFrame:
    """Return per image and sigma: whether correctness or certification differ between 1 and ``many`` votes, and radii.

    Columns are number, sigma, changed, and moved, the absolute difference of the radii.
    """
    chosen = certified[certified["method"] == METHOD].assign(certified=is_certified(certified))
    chosen["correct"] = chosen["correct"].astype("boolean").fillna(True)
    wide = chosen.pivot(index=["number", "sigma"], columns="votes", values=["correct", "certified", "radius"])
    one, more = wide.xs(1, axis=1, level="votes"), wide.xs(many, axis=1, level="votes")
    changed = (one["correct"] != more["correct"]) | (one["certified"] != more["certified"])
    moved = (one["radius"] - more["radius"]).astype(float).abs()
    return pd.DataFrame({"changed": changed, "moved": moved}).reset_index()


def chosen_panels(certified: pd.DataFrame, many: int, images: int | list[int]) -> pd.DataFrame:
    """Return the panels to draw: number, sigma, changed.

    ``images`` are the numbers of the images to show, each at every sigma, or how many to choose: those that voting
    changes at most sigmas, and by most radius, at the sigmas where it does. Where it changes none, those panels stand
    in whose radius moves most.
    """
    found = changes(certified, many)
    if isinstance(images, list):
        missing = sorted(set(images) - set(found["number"]))
        if missing:
            raise ValueError(
                f"figures.vote_distribution_images lists {missing[0]}: no image of this run has that number"
            )
        found = found[found["number"].isin(images)].assign(order=lambda rows: rows["number"].map(images.index))
        return found.sort_values(["order", "sigma"])[["number", "sigma", "changed"]]
    some = found[found["changed"]]
    if some.empty:
        return found.sort_values("moved", ascending=False, kind="stable").head(images)[["number", "sigma", "changed"]]
    score = some.groupby("number").agg(sigmas=("changed", "sum"), moved=("moved", "sum"))
    ranked = list(score.sort_values(["sigmas", "moved"], ascending=False, kind="stable").index[:images])
    some = some[some["number"].isin(ranked)].assign(order=lambda rows: rows["number"].map(ranked.index))
    return some.sort_values(["order", "sigma"])[["number", "sigma", "changed"]]


def shares(
    counts: pd.DataFrame,
    certified: pd.DataFrame,
    classes: dict[int, str],
    *,
    many: int,
    images: int | list[int],
    stage: Stage,
) -> pd.DataFrame:
    """Return for each panel and number of votes the shares of its most frequent labels, and of all others.

    All of it is one stage's counts: a label ``is_top`` where they have most of it, and ``certified`` where the
    certificate is about that very label.
    """
    rows = counts[counts["method"] == METHOD].set_index(["number", "sigma", "votes"])
    verdicts = certified[certified["method"] == METHOD].set_index(["number", "sigma", "votes"])
    found = []
    for panel in chosen_panels(certified, many, images).itertuples():
        keys = {votes: (panel.number, panel.sigma, votes) for votes in (1, many)}
        drawn = {votes: np.array(rows.loc[key, f"counts_{stage}"]) for votes, key in keys.items()}
        pooled = np.sum([count / count.sum() for count in drawn.values()], axis=0)
        truth = rows.loc[keys[1], "label"]
        leading = np.argsort(-pooled, kind="stable")[: min(LEADING, int((pooled > 0).sum()))]
        if not pd.isna(truth) and truth not in leading:
            leading = np.append(leading[: LEADING - 1], truth)
        for votes, count in drawn.items():
            verdict, top, total = verdicts.loc[keys[votes]], int(count.argmax()), int(count.sum())
            shown = [(int(label), classes.get(int(label), str(label)), count[label]) for label in leading]
            shown.append((-1, OTHERS, total - int(count[leading].sum())))
            for rank, (label, name, samples) in enumerate(shown):
                found.append(
                    {
                        "number": panel.number,
                        "sigma": panel.sigma,
                        "votes": votes,
                        "changed": panel.changed,
                        "rank": rank,
                        "label": label,
                        "name": name,
                        "share_percent": 100 * samples / total,
                        "samples": total,
                        "is_true": not pd.isna(truth) and label == truth,
                        "is_top": label == top,
                        "certified": label == top and label == verdict["prediction"] and not verdict["abstained"],
                    }
                )
    return pd.DataFrame(found)


def _panel(axis: Axes, panel: pd.DataFrame, votes: list[int]) -> None:
    grid = panel.pivot(index="rank", columns="votes", values="share_percent")[votes]
    sns.heatmap(
        grid,
        ax=axis,
        vmin=0,
        vmax=150,  # the darkest cell stays light enough for black print
        cmap="Blues",
        cbar=False,
        annot=True,
        fmt=".0f",
        annot_kws={"fontsize": plt.rcParams["font.size"] - 1, "color": "black"},
        linewidths=1.5,
        linecolor="white",
    )
    names = panel.drop_duplicates("rank").sort_values("rank")
    axis.set_yticks(names["rank"] + 0.5, [shorten(name, 19) for name in names["name"]], rotation=0)
    for tick, true in zip(axis.get_yticklabels(), names["is_true"], strict=True):
        tick.set(color=RED if true else plt.rcParams["text.color"], fontweight="bold" if true else "normal")
    axis.set_xticks(np.arange(len(votes)) + 0.5, [f"{vote} vote{'s' if vote > 1 else ''}" for vote in votes])
    axis.tick_params(length=0)
    axis.set(xlabel="", ylabel="")
    for row in panel[panel["is_top"]].itertuples():
        corner = votes.index(row.votes) + 0.03, row.rank + 0.06
        dashes = "-" if row.certified else (0, (2, 1.4))
        axis.add_patch(Rectangle(corner, 0.94, 0.88, fill=False, edgecolor="black", linewidth=1.3, linestyle=dashes))
    axis.set_title(f"image {panel['number'].iloc[0]}, $\\sigma$ = {panel['sigma'].iloc[0]:g}", fontsize="medium")


def draw(table: pd.DataFrame) -> Figure:
    """Draw `shares`: a panel per image and sigma, percentages of its leading labels at few and at many votes."""
    votes = sorted(table["votes"].unique())
    panels = list(table.groupby(["number", "sigma"], sort=False))
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    size = (TEXT_WIDTH * columns / COLUMNS, 0.35 + 1.32 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (_, panel) in zip(axes.flat, panels, strict=False):
        _panel(axis, panel, votes)
    handles = [
        Line2D([], [], color="black", label="top class, certified"),
        Line2D([], [], color="black", dashes=(2, 1.4), label="top class, abstained"),
        Line2D([], [], linestyle="none", label="bold red: true class"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, labelcolor=["black", "black", RED])
    return figure


def needed_percent(n: int, alpha: float) -> float:
    """Return the least share of n samples, in percent, with which the paper's bound certifies a class."""
    lower = clopper_pearson_lower(np.arange(n + 1), n, alpha)
    return 100 * float(np.argmax(lower > 0.5)) / n


def caption(table: pd.DataFrame, *, stage: Stage, needed: float | None = None) -> str:
    """Say what is drawn, and whether voting changed anything; ``needed`` is the share of `needed_percent`."""
    panels = table.drop_duplicates(["number", "sigma"])
    changed, images = int(panels["changed"].sum()), panels["number"].nunique()
    many, sizes = table["votes"].max(), table["samples"]
    samples = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    of_samples = f" (it needs {needed:.1f}% of the estimation samples)" if needed else ""
    true = table[table["is_true"]].groupby("votes")["share_percent"].mean()
    moved = f"; its share goes from {true[1]:.0f}% to {true[many]:.0f}% in the mean" if len(true) else ""
    if changed:
        found = (
            f"{changed} of these {len(panels)} panels ({images} images) are cases in which {many} votes instead of one "
            "change whether ADDS is right or certified; how often that happens is for the tables to say."
        )
    else:
        found = (
            f"{many} votes instead of one change neither correctness nor certification in any panel here: they are "
            f"those of the {images} images that were asked for, or those whose radius moved most."
        )
    return (
        f"How voting moves ADDS's class counts: percent of {samples} {stage} samples that fell on a class, at one vote "
        f"and at {many}. {found} A box marks the class with most of these samples, solid where it is certified, dashed "
        f"where ADDS abstains{of_samples}. The true class is bold and red{moved}."
    )
