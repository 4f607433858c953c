"""Certified accuracy by the two bounds, from the same counts."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from adds.registry import Variant, title
from adds.results.accuracy import accuracy_curve
from adds.results.figures.style import TEXT_WIDTH, line

POINTS = 200


def curves(both: pd.DataFrame, variants: list[Variant]) -> pd.DataFrame:
    """Return the curves of some variants by either bound: method, sigma, votes, radius, accuracy, bound."""
    radii = np.linspace(0, 1.05 * max(float(both["radius"].max()), 1e-3), POINTS)
    chosen = both[[pair in variants for pair in zip(both["method"], both["votes"], strict=True)]]
    parts = [accuracy_curve(part, radii).assign(bound=bound) for bound, part in chosen.groupby("bound")]
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per sigma: solid for pair, dotted for cohen."""
    sigmas = sorted(table["sigma"].unique())
    figure, axes = plt.subplots(1, len(sigmas), figsize=(TEXT_WIDTH, 2.4), sharey=True, squeeze=False)
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        panel = table[table["sigma"] == sigma]
        for (method, votes, bound), curve in panel.groupby(["method", "votes", "bound"]):
            axis.step(
                curve["radius"],
                100 * curve["accuracy"],
                where="post",
                color=line(method, votes).colour,
                linestyle="-" if bound == "pair" else (0, (1, 1.2)),
                linewidth=1.6,
                label=f"{title(method, votes)}, {bound}",
            )
        visible = panel[panel["accuracy"] > 0]["radius"]
        axis.set_xlim(0, 1.05 * max(float(visible.max()) if len(visible) else 0, 1e-3))
        axis.set_ylim(0, 102)
        axis.set_title(f"$\\sigma$ = {sigma:g}")
        axis.set_xlabel("$\\ell_2$ radius")
    axes[0, 0].set_ylabel("Certified accuracy (%)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
