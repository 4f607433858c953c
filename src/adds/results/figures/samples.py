"""Images that the diffusion model makes from nothing: a look at whether it has learned its data."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from adds.results.figures.style import TEXT_WIDTH

COLUMNS = 15


def draw(pictures: NDArray[np.float32]) -> Figure:
    """Draw pictures [n, C, H, W] in [0, 1] as a contact sheet."""
    rows = -(-len(pictures) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(TEXT_WIDTH, rows * TEXT_WIDTH / COLUMNS), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, picture in zip(axes.flat, pictures, strict=False):
        axis.imshow(np.clip(picture, 0, 1).transpose(1, 2, 0).squeeze(), vmin=0, vmax=1, cmap="gray")
    return figure


def pixels_table(pictures: NDArray[np.float32]) -> pd.DataFrame:
    """Return what is drawn: a row per picture, its pixels in columns."""
    return pd.DataFrame(pictures.reshape(len(pictures), -1)).rename_axis("picture").reset_index().round(4)
