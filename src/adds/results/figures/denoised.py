"""What each method shows the classifier: original, noised input, and one denoised sample per method."""

from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from adds.results.figures.style import RED, TEXT_WIDTH, shorten


def show(axis: Axes, picture: NDArray[np.float32]) -> None:
    """Draw a picture [C, H, W] in [0, 1] without axes."""
    pixels = np.clip(picture, 0, 1).transpose(1, 2, 0).squeeze()
    axis.imshow(pixels, vmin=0, vmax=1, cmap="gray", interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)


def draw(pictures: NDArray[np.float32], table: pd.DataFrame, sigma: float) -> Figure:
    """Draw pictures [images, methods, C, H, W] in [0, 1]: a column per image, the predicted class under each picture.

    ``table`` has a row per picture: row (the image), column (the method), number, name, caption, and whether it is
    right.
    """
    images, methods = pictures.shape[:2]
    size = min(TEXT_WIDTH / (images + 1.2), 0.95)
    side = ((images + 1.2) * size, methods * size * 1.22 + 0.45)
    figure, axes = plt.subplots(methods, images, figsize=side, squeeze=False)
    for cell in table.itertuples():
        axis = axes[cell.column, cell.row]
        show(axis, pictures[cell.row, cell.column])
        if cell.column == 0:
            axis.set_title(f"image\n{cell.number}", fontsize="small")
        if cell.row == 0:
            name = "\n".join(wrap(cell.name, 14))
            axis.set_ylabel(name, fontsize="small", rotation=0, ha="right", va="center")
        wrong = cell.right == "no"
        text = shorten(cell.caption, max(int(18 * size) - 2 * wrong, 3))
        look = {"color": RED, "fontweight": "bold"} if wrong else {}
        axis.set_xlabel(f"✗ {text}" if wrong else text, fontsize="small", labelpad=2, **look)
    figure.suptitle(f"$\\sigma$ = {sigma:g}", fontsize="medium")
    return figure


def caption(table: pd.DataFrame, sigma: float) -> str:
    """Say what is drawn."""
    wrong = int((table["right"] == "no").sum())
    return (
        f"What the classifier sees at sigma {sigma:g}: the original, the noised input that RS classifies, and one "
        f"sample of each method for the same image, with the predicted class underneath; ✗ marks the {wrong} that are "
        "wrong. Each is sample 0 of its image; methods share their random numbers, so differences are the methods' "
        "own."
    )
