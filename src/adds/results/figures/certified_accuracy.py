"""Certified accuracy against radius, one panel per sigma."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from adds.registry import BOUNDS, METHODS, in_order, title
from adds.results.accuracy import accuracy_steps, interval, value_at
from adds.results.figures.style import TEXT_WIDTH, Line, line

MARKERS = 6
"""How many markers stand along a panel's width: lines that overlap are told apart by them, in grey print too."""


MARGIN = 1.1
"""How far axes go beyond the largest radius: at the end there is room for the bar of the interval."""


def curves(certified: pd.DataFrame, votes: int) -> pd.DataFrame:
    """Return the curves of the voting methods at ``votes``, and of all methods that don't vote."""
    chosen = certified[(certified["votes"] == votes) | ~certified["method"].map(lambda name: METHODS[name].takes_votes)]
    return accuracy_steps(chosen)


def panels(sigmas: list[float], reach: float) -> tuple[Figure, NDArray[np.object_]]:
    """Return a panel per sigma, all with the same axes, up to the largest radius that any curve reaches."""
    width = TEXT_WIDTH if len(sigmas) > 1 else 0.62 * TEXT_WIDTH
    figure, axes = plt.subplots(1, len(sigmas), figsize=(width, 2.9), sharex=True, sharey=True, squeeze=False)
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        axis.set_xlim(0, MARGIN * reach if reach > 0 else 1.0)
        axis.set_ylim(0, 103)
        axis.set_title(f"$\\sigma$ = {sigma:g}")
        axis.set_xlabel("$\\ell_2$ radius")
        axis.grid(axis="y", color="0.9", linewidth=0.5)
    axes[0, 0].set_ylabel("Certified accuracy (%)")
    return figure, axes[0]


def draw_steps(axis: Axes, curve: pd.DataFrame, look: Line, markers_at: NDArray[np.float64]) -> None:
    """Draw one curve exactly: a point (r, a) is the accuracy at r and at all radii down to the point before.

    It ends with a drop where its last image's radius does; a method that certifies nothing is a marker at 0.
    """
    radius, percent = curve["radius"].to_numpy(), curve["certified_accuracy_percent"].to_numpy()
    axis.step(
        np.append(radius, radius[-1]),
        np.append(percent, 0),
        where="pre",
        color=look.colour,
        dashes=look.dashes or (None, None),
        linewidth=look.width,
        clip_on=False,
    )
    at = np.append(markers_at[markers_at < radius[-1]], [] if percent[0] else [0.0])
    if len(at):  # the layout takes an empty line that isn't clipped for one without end
        axis.plot(at, value_at(curve, at), look.marker, color=look.colour, markersize=3.6, clip_on=False)


def handle(look: Line, name: str) -> Line2D:
    """Return a line for the legend."""
    return Line2D(
        [],
        [],
        color=look.colour,
        dashes=look.dashes or (None, None),
        linewidth=look.width,
        marker=look.marker,
        markersize=3.6,
        label=name,
    )


def show_interval(axis: Axes, images: int) -> None:
    """Draw how wide the 95% interval of a curve is where it is widest, at one half."""
    low, high = (100 * end for end in interval(images // 2, images))
    place = 0.97 * axis.get_xlim()[1]
    axis.plot([place, place], [low, high], marker="_", color="0.5", linewidth=0.9, markersize=5)
    axis.text(0.98 * place, high, "95% interval\nof one curve", color="0.4", fontsize="x-small", va="top", ha="right")


def draw(table: pd.DataFrame) -> Figure:
    """Draw the curves of `curves`."""
    sigmas = sorted(table["sigma"].unique())
    variants = in_order(zip(table["method"], table["votes"], strict=True))
    reach = float(table["radius"].max())
    figure, axes = panels(sigmas, reach)
    width = MARGIN * reach / MARKERS
    for axis, sigma in zip(axes, sigmas, strict=True):
        panel = table[table["sigma"] == sigma]
        for place, (method, votes) in enumerate(variants):
            curve = panel[(panel["method"] == method) & (panel["votes"] == votes)]
            shifted = width * (np.arange(MARKERS, dtype=np.float64) + (place + 0.5) / len(variants))
            if len(curve):
                draw_steps(axis, curve, line(method, votes), shifted)
    show_interval(axes[-1], int(table["images"].max()))
    handles = [handle(line(method, votes), title(method, votes)) for method, votes in variants]
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if len(sigmas) > 1 else 2)
    return figure


def caption(table: pd.DataFrame, votes: int, *, bound: str, n: int, alpha: float, at_most: str = "") -> str:
    """Say what is drawn."""
    images = int(table["images"].max())
    nothing = table.groupby(["method", "sigma", "votes"])["certified_accuracy_percent"].max() == 0
    none = " A method that certifies no image is a marker at 0." if nothing.any() else ""
    early = " Sampling stopped when its questions were answered: other radii are those known by then."
    return (
        f"Share of {images} images that are classified rightly and certified for at least the given l2 radius, in [0, "
        f"1] pixel units, by {BOUNDS[bound].title}; {votes} vote{'s' if votes > 1 else ''} for the methods that vote. "
        f"Every step is one image ({100 / images:.2g} points) or several; a curve ends where the last image's radius "
        f"does.{none} The bar at the right is the exact 95% interval of one curve where it is widest; differences "
        f"between curves are paired, and the table of claims tests them. {at_most.capitalize()}n = {n:,} samples, "
        f"alpha = {alpha:g}: no radius can exceed the one of n successes in n.{early if at_most else ''}"
    )
