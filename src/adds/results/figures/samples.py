"""Images that the diffusion model makes from nothing, under real ones: a look at whether it has learned its data."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from adds.results.figures.denoised import show
from adds.results.figures.style import TEXT_WIDTH

COLUMNS = 15


def draw(made: NDArray[np.float32], real: NDArray[np.float32]) -> Figure:
    """Draw pictures [n, C, H, W] in [0, 1] as a contact sheet: a row of real ones, then those that were made."""
    lines = -(-len(made) // COLUMNS)
    size = (TEXT_WIDTH, (lines + 1.5) * TEXT_WIDTH / COLUMNS)
    figure = plt.figure(figsize=size)
    above, below = figure.subfigures(2, 1, height_ratios=(1, lines), squeeze=False).flat
    for part, pictures, name, rows in ((above, real, "real", 1), (below, made, "made", lines)):
        axes = part.subplots(rows, COLUMNS, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, picture in zip(axes.flat, pictures, strict=False):
            axis.set_axis_on()
            show(axis, picture)
        axes[0, 0].set_axis_on()
        axes[0, 0].set_ylabel(name)
    return figure


def pixels_table(made: NDArray[np.float32], real: NDArray[np.float32]) -> pd.DataFrame:
    """Return what is drawn: a row per picture, its pixels in columns."""
    pictures = np.concatenate([real, made])
    table = pd.DataFrame(pictures.reshape(len(pictures), -1)).round(4)
    table.insert(0, "made", [False] * len(real) + [True] * len(made))
    return table


def caption(steps: int) -> str:
    """Say what is drawn."""
    return (
        f"First row: real images. Below: images that the diffusion model makes from pure noise in {steps} steps. They "
        "should look like the data: if they don't, the model has not been trained enough, and every method that "
        "denoises with it will do badly. Certificates stay true all the same."
    )
