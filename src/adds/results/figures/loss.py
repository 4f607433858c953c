"""Training loss of the embedded experiment's networks, and how well they do on held-out images."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.results.figures.style import TEXT_WIDTH


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per network; ``table`` has the columns network, step, loss, held_out, held_out_name."""
    networks = list(dict.fromkeys(table["network"]))
    figure, axes = plt.subplots(1, len(networks), figsize=(TEXT_WIDTH, 2.5), squeeze=False)
    for axis, network in zip(axes[0], networks, strict=True):
        rows = table[table["network"] == network]
        held_out, right = rows["held_out_name"].iloc[0], axis.twinx()
        loss = axis.plot(rows["step"], rows["loss"], color="#0072B2", label="training loss")
        held = right.plot(rows["step"], rows["held_out"], color="#D55E00", dashes=(4, 1.5), label=held_out)
        axis.set(title=network, xlabel="Training step", ylabel="Training loss")
        right.set_ylabel(held_out.capitalize())
        right.spines["right"].set_visible(True)
        axis.set_ylim(bottom=0)
        right.set_ylim(bottom=0)
        axis.legend(handles=[*loss, *held], loc="center right")
    return figure


def caption() -> str:
    """Say what is drawn."""
    return (
        "Training loss of the two networks (left axes, solid), with the mean squared error of the predicted noise and "
        "the accuracy on images that were not trained on (right axes, dashed)."
    )
