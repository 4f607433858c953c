"""How many samples an image needs until its answer at r = 0 is known, against how sure its class is."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.figures.style import TEXT_WIDTH, line
from adds.naming import in_order, label


def draw(drawn: pd.DataFrame) -> Figure:
    """Draw a panel per sigma and a point per image and method; hollow triangles stayed open."""
    sigmas = sorted(drawn["sigma"].unique())
    figure, axes = plt.subplots(1, len(sigmas), figsize=(TEXT_WIDTH, 2.6), sharey=True, squeeze=False)
    settings = in_order(zip(drawn["method"], drawn["votes"], strict=True))
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        for method, votes in settings:
            own = drawn[(drawn["sigma"] == sigma) & (drawn["method"] == method) & (drawn["votes"] == votes)]
            colour = line((method, votes)).colour
            marker = "o" if votes == 1 else "D"
            known, still_open = own[own["decided"]], own[~own["decided"]]
            axis.scatter(known["p_top"], known["samples"], s=9, color=colour, marker=marker, alpha=0.75)
            axis.scatter(
                still_open["p_top"], still_open["samples"], s=16, marker="^", facecolors="none", edgecolors=colour
            )
            axis.scatter([], [], s=14, color=colour, marker=marker, label=label(method, votes))
        axis.axvline(0.5, color="#999999", linewidth=0.7, linestyle=":")
        axis.set_yscale("log")
        axis.set_xlim(0, 1.02)
        axis.set_title(f"$\\sigma$ = {sigma:g}")
        axis.set_xlabel("Share of the top class")
    axes[0, 0].set_ylabel("Samples needed for $r$ = 0")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    return figure
