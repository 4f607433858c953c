"""Training loss of the embedded experiment's networks, and how well they do on held-out images."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.results.figures.style import TEXT_WIDTH


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per network; ``table`` has the columns network, step, loss, held_out, held_out_name."""
    networks = list(dict.fromkeys(table["network"]))
    figure, axes = plt.subplots(1, len(networks), figsize=(TEXT_WIDTH, 2.3), squeeze=False)
    for axis, network in zip(axes[0], networks, strict=True):
        rows = table[table["network"] == network]
        axis.plot(rows["step"], rows["loss"], color="#0072B2", label="training loss")
        held_out = rows["held_out_name"].iloc[0]
        axis.plot(rows["step"], rows["held_out"], color="#D55E00", dashes=(4, 1.5), label=held_out)
        axis.set_title(network)
        axis.set_xlabel("Step")
        axis.set_ylim(bottom=0)
        axis.legend()
    return figure
