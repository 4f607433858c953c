"""The paper's Figure 1 from a run: one image's trajectory from noise to the classifier, and what it pays on the way."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from adds.results.figures.denoised import show
from adds.results.figures.style import TEXT_WIDTH, shorten

GUIDED, UNGUIDED = 6, 3
"""How many steps of each part are shown."""
TINTS = {True: "#fdeee4", False: "#eaf2f8"}
ROWS = ("state $x_t$", "predicted $x_0$", "guided $x_0$")


def shown_steps(table: pd.DataFrame) -> list[int]:
    """Return the positions of the steps that are drawn: of either part the first, the last, and some between."""
    chosen: list[int] = []
    for guided, most in ((True, GUIDED), (False, UNGUIDED)):
        places = np.flatnonzero(table["guided"] == guided)
        if len(places):
            evenly = np.linspace(0, len(places) - 1, min(most, len(places))).round().astype(int)
            chosen += [int(place) for place in places[evenly]]
    return chosen


def _part(
    part: SubFigure, pictures: NDArray[np.float32], table: pd.DataFrame, places: list[int], *, guided: bool
) -> None:
    """Draw the steps at some places, one below the other: state, prediction, guided prediction, budget."""
    axes = part.subplots(4, len(places), squeeze=False, height_ratios=(1, 1, 1, 0.62))
    for column, place in enumerate(places):
        step = table.iloc[place]
        for axis, picture in zip(axes[:3, column], pictures[place], strict=True):
            if np.isnan(picture).any():
                axis.set_axis_off()
            else:
                show(axis, picture)
        axes[0, column].set_title(f"$t$ = {step['timestep']}", fontsize="small")
        bar = axes[3, column]
        bar.bar([0], [step["spent_percent"]], width=0.5, color="#D55E00" if guided else "0.65")
        bar.set(xlim=(-0.5, 0.5), ylim=(0, 100), xticks=[], yticks=[])
        bar.set_xlabel(f"{step['spent_percent']:.0f}%", fontsize="small", labelpad=2)
        bar.spines["left"].set_visible(False)
    if guided:
        for axis, name in zip(axes[:, 0], (*ROWS, "budget\nspent"), strict=True):
            axis.set_ylabel(name, fontsize="small")
    part.set_facecolor(TINTS[guided])
    told = "guided towards the image, paid from the budget" if guided else "unguided: doesn't see the image"
    part.suptitle(told, fontsize="small", fontweight="bold")


def draw(
    pictures: NDArray[np.float32], table: pd.DataFrame, image: NDArray[np.float32], *, truth: str, prediction: str
) -> Figure:
    """Draw a trajectory as `adds.sampling.closeups.trajectory` returns it, from the image to its prediction."""
    places = shown_steps(table)
    parts = {
        guided: [place for place in places if bool(table["guided"].iloc[place]) == guided] for guided in (True, False)
    }
    parts = {guided: chosen for guided, chosen in parts.items() if chosen}
    widths = [1.25, *(len(chosen) + (0.45 if guided else 0.1) for guided, chosen in parts.items()), 1.25]
    figure = plt.figure(figsize=(TEXT_WIDTH, 3.05))
    ends = figure.subfigures(1, len(widths), width_ratios=widths, wspace=0.015, squeeze=False)[0]
    for part, (guided, chosen) in zip(ends[1:-1], parts.items(), strict=True):
        _part(part, pictures, table, chosen, guided=guided)
    for part, picture, name, text in (
        (ends[0], image, "image $x$", f"true class {truth}" if truth else ""),
        (ends[-1], pictures[-1, 1], "the classifier\nsees", f"and says {shorten(prediction, 16)}"),
    ):
        axis = part.subplots(4, 1, height_ratios=(1, 1, 1, 0.62))
        for other in axis:
            other.set_axis_off()
        axis[1].set_axis_on()
        show(axis[1], picture)
        axis[1].set_title(name, fontsize="small")
        axis[1].set_xlabel(shorten(text, 26), fontsize="small")
    return figure


def caption(table: pd.DataFrame, *, number: int, sigma: float) -> str:
    """Say what is drawn."""
    guided = table[table["guided"]]
    spent = f"{guided['spent_percent'].iloc[-1]:.0f}%" if len(guided) else "nothing"
    return (
        f"One trajectory of ADDS on image {number} at sigma {sigma:g}, as it was drawn: {len(guided)} guided steps "
        f"from pure noise, then {len(table) - len(guided)} without guidance; some of them are shown. At each step the "
        "diffusion model predicts x0 from the state. While there is budget, the prediction is pulled towards the "
        "image, which costs privacy; noise is added, and the next state follows. The bars are the budget spent so far "
        f"(mean over coordinates, in the end {spent}): what was spent on all steps together is worth one look through "
        "Gaussian noise of size sigma, which is why the result can be certified. The rest never sees the image and "
        "costs nothing."
    )
