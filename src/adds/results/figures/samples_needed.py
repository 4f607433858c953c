"""How many samples an image needs until its answer at r = 0 is known, against how sure its class is."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.registry import in_order, title
from adds.results.figures.style import TEXT_WIDTH, line


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per sigma and a point per image and method; hollow triangles stayed open."""
    sigmas = sorted(table["sigma"].unique())
    figure, axes = plt.subplots(1, len(sigmas), figsize=(TEXT_WIDTH, 2.6), sharey=True, squeeze=False)
    variants = in_order(zip(table["method"], table["votes"], strict=True))
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        for method, votes in variants:
            rows = table[(table["sigma"] == sigma) & (table["method"] == method) & (table["votes"] == votes)]
            colour = line(method, votes).colour
            marker = "o" if votes == 1 else "D"
            known, still_open = rows[rows["decided"]], rows[~rows["decided"]]
            axis.scatter(known["p_top"], known["samples"], s=9, color=colour, marker=marker, alpha=0.75)
            axis.scatter(
                still_open["p_top"], still_open["samples"], s=16, marker="^", facecolors="none", edgecolors=colour
            )
            axis.scatter([], [], s=14, color=colour, marker=marker, label=title(method, votes))
        axis.axvline(0.5, color="#999999", linewidth=0.7, linestyle=":")
        axis.set_yscale("log")
        axis.set_xlim(0, 1.02)
        axis.set_title(f"$\\sigma$ = {sigma:g}")
        axis.set_xlabel("Share of the top class")
    axes[0, 0].set_ylabel("Samples needed for $r$ = 0")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    return figure
