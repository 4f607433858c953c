"""Certified accuracy against radius, one panel per sigma."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from adds.registry import METHODS, in_order, title
from adds.results.accuracy import accuracy_curve
from adds.results.figures.style import TEXT_WIDTH, line

POINTS = 200


def curves(certified: pd.DataFrame, votes: int) -> pd.DataFrame:
    """Return the curves of the voting methods at ``votes``, and of all methods that don't vote."""
    chosen = certified[(certified["votes"] == votes) | ~certified["method"].map(lambda name: METHODS[name].takes_votes)]
    top = float(chosen["radius"].max())
    return accuracy_curve(chosen, np.linspace(0, 1.05 * top if top > 0 else 1.0, POINTS))


def draw(table: pd.DataFrame) -> Figure:
    """Draw the curves of `curves`."""
    sigmas = sorted(table["sigma"].unique())
    figure, axes = plt.subplots(1, len(sigmas), figsize=(TEXT_WIDTH, 2.4), sharey=True, squeeze=False)
    variants = in_order(zip(table["method"], table["votes"], strict=True))
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        panel = table[table["sigma"] == sigma]
        for method, votes in variants:
            curve = panel[(panel["method"] == method) & (panel["votes"] == votes)]
            look = line(method, votes)
            axis.step(
                curve["radius"],
                100 * curve["accuracy"],
                where="post",
                color=look.colour,
                dashes=look.dashes,
                linewidth=look.width,
                label=title(method, votes),
            )
        visible = panel[panel["accuracy"] > 0]["radius"]
        axis.set_xlim(0, 1.05 * float(visible.max()) if len(visible) and visible.max() > 0 else 1.0)
        axis.set_ylim(0, 102)
        axis.set_title(f"$\\sigma$ = {sigma:g}")
        axis.set_xlabel("$\\ell_2$ radius")
    axes[0, 0].set_ylabel("Certified accuracy (%)")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure
