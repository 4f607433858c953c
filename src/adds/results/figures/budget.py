"""How ADDS spends its privacy budget over the steps, per sigma."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.results.figures.style import MARKERS, PALETTE, TEXT_WIDTH


def draw(table: pd.DataFrame) -> Figure:
    """Draw the share of mu^2 spent, and the guidance scale used, against the timestep.

    ``table`` has a row per sigma and timestep: mean, least and most share spent so far over all coordinates
    of all trajectories, and the mean scale of that step. Trajectories that have left keep what they spent.
    """
    figure, (spent, scale) = plt.subplots(1, 2, figsize=(TEXT_WIDTH, 2.5))
    for number, (sigma, rows) in enumerate(table.groupby("sigma")):
        look = {
            "color": PALETTE[number % len(PALETTE)],
            "marker": MARKERS[number % len(MARKERS)],
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


def caption() -> str:
    """Say what is drawn."""
    return (
        "How ADDS spends its privacy budget mu^2 = 1 / (2 sigma)^2 along the chain, which starts from pure noise at "
        "the left. Left: share of the budget that a coordinate has spent (mean; the band spans all coordinates of all "
        "trajectories). It never exceeds 100%, and that is what the certificate rests on. Right: the guidance scale "
        "that was used; it drops where a coordinate can't pay for the whole scale any more."
    )
