"""Training loss of the embedded experiment's networks, and how well they do on held-out images."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.figures.style import TEXT_WIDTH


def draw(drawn: pd.DataFrame) -> Figure:
    """Draw a panel per network; ``drawn`` has the columns network, step, loss, held_out, held_out_name."""
    networks = list(dict.fromkeys(drawn["network"]))
    figure, axes = plt.subplots(1, len(networks), figsize=(TEXT_WIDTH, 2.3), squeeze=False)
    for axis, network in zip(axes[0], networks, strict=True):
        own = drawn[drawn["network"] == network]
        axis.plot(own["step"], own["loss"], color="#0072B2", label="training loss")
        held_out = own["held_out_name"].iloc[0]
        axis.plot(own["step"], own["held_out"], color="#D55E00", dashes=(4, 1.5), label=held_out)
        axis.set_title(network)
        axis.set_xlabel("Step")
        axis.set_ylim(bottom=0)
        axis.legend()
    return figure
