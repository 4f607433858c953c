"""Certified accuracy against radius, one panel per sigma."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from adds.figures.style import TEXT_WIDTH, line
from adds.naming import VOTING, in_order, label
from adds.results import accuracy_curve

POINTS = 200


def curves(certified: pd.DataFrame, votes: int) -> pd.DataFrame:
    """Return the curves of the voting methods at ``votes``, and of all methods that don't vote."""
    chosen = certified[(certified["votes"] == votes) | ~certified["method"].isin(VOTING)]
    top = float(chosen["radius"].max())
    return accuracy_curve(chosen, np.linspace(0, 1.05 * top if top > 0 else 1.0, POINTS))


def draw(drawn: pd.DataFrame) -> Figure:
    """Draw the curves of `curves`."""
    sigmas = sorted(drawn["sigma"].unique())
    figure, axes = plt.subplots(1, len(sigmas), figsize=(TEXT_WIDTH, 2.4), sharey=True, squeeze=False)
    settings = in_order(zip(drawn["method"], drawn["votes"], strict=True))
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        panel = drawn[drawn["sigma"] == sigma]
        for method, votes in settings:
            curve = panel[(panel["method"] == method) & (panel["votes"] == votes)]
            look = line((method, votes))
            axis.step(
                curve["radius"],
                100 * curve["accuracy"],
                where="post",
                color=look.colour,
                dashes=look.dashes,
                linewidth=look.width,
                label=label(method, votes),
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
