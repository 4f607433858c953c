"""How many samples an image needs until its answer at r = 0 is known, against how far its class is ahead."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from adds.registry import Variant, in_order, title
from adds.results.figures.style import TEXT_WIDTH, line

FILLS = ("full", "none", "bottom", "left")
"""How a method's numbers of votes are told apart, the smallest first."""

DECIDED, STRIP = 2.3, 0.62
"""Heights of the two parts of a panel, in inches."""


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per sigma and a point per image and variant; what is open stands in a strip of its own above."""
    sigmas = sorted(table["sigma"].unique())
    parts = [decided for decided in (False, True) if (table["decided"] == decided).any()]
    heights = [DECIDED if decided else STRIP for decided in parts]
    figure, axes = plt.subplots(
        len(parts),
        len(sigmas),
        figsize=(TEXT_WIDTH, sum(heights) + 0.9),
        sharex=True,
        sharey="row",
        squeeze=False,
        height_ratios=heights,
    )
    variants = in_order(zip(table["method"], table["votes"], strict=True))
    for decided, row in zip(parts, axes, strict=True):
        for axis, sigma in zip(row, sigmas, strict=True):
            _points(axis, table[(table["sigma"] == sigma) & (table["decided"] == decided)], variants)
            _heights(axis, decided, len(variants))
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        axis.set_title(f"$\\sigma$ = {sigma:g}")
    for axis in axes[-1]:
        axis.set_xlim(-3, 103)
        axis.set_xlabel("Margin of the top class (points)")
    if any(parts):
        samples = table["samples"]
        axes[-1, 0].set_ylim(min(20, 0.9 * samples.min()), max(110, 1.15 * samples.max()))
        axes[-1, 0].set_ylabel("Samples needed for $r$ = 0")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _points(axis: Axes, rows: pd.DataFrame, variants: list[Variant]) -> None:
    """Draw one part of a panel; in the strip a point's height is its variant's place in the legend."""
    for place, (method, votes) in enumerate(variants):
        chosen = rows[(rows["method"] == method) & (rows["votes"] == votes)]
        look = line(method, votes)
        others = sorted(variant.votes for variant in variants if variant.method == method)
        axis.plot(
            chosen["margin_points"],
            chosen["samples"].where(chosen["decided"], -place),
            linestyle="",
            color=look.colour,
            marker=look.marker,
            markersize=3.5,
            markeredgewidth=0.7,
            fillstyle=FILLS[others.index(votes) % len(FILLS)],
            alpha=0.8,
            label=title(method, votes),
        )


def _heights(axis: Axes, decided: bool, variants: int) -> None:
    """Say what heights mean: in the strip, nothing but which variant it is."""
    if decided:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(-variants, 1)
        axis.set_yticks([(1 - variants) / 2], ["open"])
        axis.tick_params(length=0)
        axis.set_facecolor("#f2f2f2")


def caption(table: pd.DataFrame, alpha: float) -> str:
    """Say what is shown, and how many points are decided and open."""
    decided = table["decided"]
    by_run = int((table["certified_by_run"] & ~decided).sum())
    text = (
        "Samples (selection and estimation) that sequential sampling needs until it knows whether an image is "
        f"certified at r = 0 by the pair bound, at alpha = {alpha:g}, against the margin between the image's most "
        "frequent class and the runner-up: the difference of their shares of the estimation samples, in percentage "
        "points. A point is an image under one method: its shape tells the method, its filling the number of votes."
    )
    if decided.all():
        return f"{text} This run's samples decide all {len(table)} points; their median is {_median(table)}."
    median = f", whose median is {_median(table)}" if decided.any() else ""
    return (
        f"{text} This run's samples decide {decided.sum()} of {len(table)} points{median}. They leave "
        f"{(~decided).sum()} open, which stand in the strip marked so: how many samples these need isn't known. This "
        f"run's own certificates by the pair bound certify {by_run} of the open ones, from the very same samples."
    )


def _median(table: pd.DataFrame) -> str:
    return f"{table['samples'].median():,.0f} samples"
