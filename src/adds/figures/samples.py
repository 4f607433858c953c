"""Images that the diffusion model makes from nothing: a look at whether it has learned its data."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from adds.figures.style import TEXT_WIDTH

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
