"""Time to certify one image, per method and sigma."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from adds.registry import in_order, title
from adds.results.figures.style import TEXT_WIDTH, line
from adds.sampling.job import SETTING


def times(certified: pd.DataFrame) -> pd.DataFrame:
    """Return mean, least and most seconds per image, and evaluations per sample, for every setting."""
    grouped = certified.groupby(SETTING)
    table = grouped["seconds"].agg(["mean", "min", "max"]).reset_index()
    totals = grouped[["evaluations", "n0", "n"]].sum()
    table["evaluations_per_sample"] = (totals["evaluations"] / (totals["n0"] + totals["n"])).to_numpy()
    table["samples_per_image"] = ((totals["n0"] + totals["n"]) / grouped.size()).to_numpy()
    return table


def draw(table: pd.DataFrame) -> Figure:
    """Draw the times of `times` as grouped bars on a logarithmic scale."""
    sigmas = sorted(table["sigma"].unique())
    variants = in_order(zip(table["method"], table["votes"], strict=True))
    figure, axis = plt.subplots(figsize=(TEXT_WIDTH, 3.0))
    width = 0.85 / len(variants)
    for position, (method, votes) in enumerate(variants):
        rows = table[(table["method"] == method) & (table["votes"] == votes)].set_index("sigma").loc[sigmas]
        look = line(method, votes)
        mean = rows["mean"].to_numpy()
        axis.bar(
            np.arange(len(sigmas)) + (position - (len(variants) - 1) / 2) * width,
            mean,
            width=0.92 * width,
            yerr=[mean - rows["min"].to_numpy(), rows["max"].to_numpy() - mean],
            error_kw={"linewidth": 0.6, "ecolor": "#444444"},
            color=look.colour,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0,
            label=title(method, votes),
        )
    axis.set_yscale("log")
    axis.set_xticks(range(len(sigmas)), [f"$\\sigma$ = {sigma:g}" for sigma in sigmas])
    axis.tick_params(axis="x", length=0)
    samples = round(float(table["samples_per_image"].mean()))
    axis.set_ylabel(f"Seconds per image\n({samples:,} samples)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
