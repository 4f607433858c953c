"""What each method shows the classifier: original, noised input, and one denoised sample per method."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from adds.results.figures.style import TEXT_WIDTH


def draw(pictures: NDArray[np.float32], names: list[str], table: pd.DataFrame) -> Figure:
    """Draw pictures [images, columns, C, H, W] in [0, 1], with the predicted class under each.

    ``table`` has a row per image and column: number, column, caption, right (empty for the first two columns).
    """
    rows, columns = pictures.shape[:2]
    size = TEXT_WIDTH / columns
    figure, axes = plt.subplots(rows, columns, figsize=(TEXT_WIDTH, rows * size * 1.13 + 0.3), squeeze=False)
    for row in range(rows):
        for column in range(columns):
            axis = axes[row, column]
            picture = np.clip(pictures[row, column], 0, 1).transpose(1, 2, 0)
            axis.imshow(picture.squeeze(), vmin=0, vmax=1, cmap="gray", interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            for spine in axis.spines.values():
                spine.set_visible(False)
            if row == 0:
                axis.set_title(names[column].replace(", ", ",\n").replace(" w/o ", "\nw/o "), fontsize="small")
            cell = table[(table["row"] == row) & (table["column"] == column)].iloc[0]
            wrong = cell["right"] == "no"
            axis.set_xlabel(
                str(cell["caption"])[:20],
                fontsize="small",
                color="#d40000" if wrong else "black",
                labelpad=2,
            )
    return figure
