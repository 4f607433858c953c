"""How ADDS spends its privacy budget over the steps, per sigma."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.results.figures.style import TEXT_WIDTH

_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
_MARKERS = "osD^vP"


def draw(table: pd.DataFrame) -> Figure:
    """Draw the share of mu^2 spent, and the guidance scale used, against the timestep.

    ``table`` has a row per sigma and timestep: mean, least and most share spent so far over all coordinates
    of all trajectories, and the mean scale of that step. Trajectories that have left keep what they spent.
    """
    figure, (spent, scale) = plt.subplots(1, 2, figsize=(TEXT_WIDTH, 2.5))
    for number, (sigma, rows) in enumerate(table.groupby("sigma")):
        look = {
            "color": _COLOURS[number % len(_COLOURS)],
            "marker": _MARKERS[number % len(_MARKERS)],
        }
        name = f"$\\sigma$ = {sigma:g}"
        spent.plot(rows["timestep"], 100 * rows["spent_mean"], **look, markersize=3.5, label=name)
        spent.fill_between(
            rows["timestep"],
            100 * rows["spent_min"],
            100 * rows["spent_max"],
            color=look["color"],
            alpha=0.18,
            linewidth=0,
        )
        scale.plot(rows["timestep"], rows["scale_mean"], **look, markersize=3.5, label=name)
    for axis in (spent, scale):
        axis.invert_xaxis()
        axis.set_xlabel("Timestep $t$ (noise on the left)")
    spent.set_ylabel("Budget spent (% of $\\mu^2$)")
    spent.set_ylim(0, 103)
    scale.set_ylabel("Guidance scale used (mean)")
    scale.set_ylim(bottom=0)
    spent.legend()
    return figure
