"""What it takes to certify one image, per method and sigma: network evaluations, and seconds on this machine."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from adds.registry import PAPER_N, Variant, in_order, title
from adds.results.figures.style import MARKERS, PALETTE, TEXT_WIDTH, shorten
from adds.sampling.job import SETTING


def warmed_up(numbers: Sequence[int], images_per_job: int) -> list[int]:
    """Return the images whose time is typical: without the first of each job, which waits for everything to warm up.

    Where a job has one image only, all of them are.
    """
    return [number for place, number in enumerate(numbers) if images_per_job == 1 or place % images_per_job]


def times(certified: pd.DataFrame, numbers: Sequence[int], images_per_job: int) -> pd.DataFrame:
    """Return per setting: evaluations per sample, and quartiles of an image's seconds for the paper's 10,000 samples.

    ``numbers`` are the images in their list's order, of which every job takes ``images_per_job``.
    """
    samples = certified["n0"] + certified["n"]
    totals = certified.assign(samples=samples).groupby(SETTING)[["evaluations", "samples"]].sum()
    timed = certified[certified["number"].isin(warmed_up(numbers, images_per_job))]
    timed = certified if timed.empty else timed
    scaled = timed.assign(seconds=timed["seconds"] / samples.loc[timed.index] * PAPER_N).groupby(SETTING)["seconds"]
    table = pd.DataFrame({"evaluations_per_sample": totals["evaluations"] / totals["samples"]})
    for name, share in (("low", 0.25), ("median", 0.5), ("high", 0.75)):
        table[f"seconds_per_10000_samples_{name}"] = scaled.quantile(share)
    table["images_timed"] = scaled.size()
    return table.reset_index().assign(device=", ".join(sorted(set(certified["device"]))))


def draw(table: pd.DataFrame) -> Figure:
    """Draw a row per variant and a point per sigma: evaluations at the left, seconds at the right."""
    sigmas = sorted(table["sigma"].unique())
    variants = in_order(zip(table["method"], table["votes"], strict=True))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(TEXT_WIDTH, 0.9 + 0.235 * len(variants)), sharey=True, width_ratios=(1.25, 1)
    )
    rows = {variant: place for place, variant in enumerate(variants)}
    for place, sigma in enumerate(sigmas):
        part = table[table["sigma"] == sigma]
        shift = 0.2 * (place - (len(sigmas) - 1) / 2)
        height = [rows[Variant(*key)] + shift for key in zip(part["method"], part["votes"], strict=True)]
        colour, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
        left.plot(part["evaluations_per_sample"], height, marker, color=colour, markersize=4)
        seconds = {end: part[f"seconds_per_10000_samples_{end}"] for end in ("low", "median", "high")}
        right.hlines(height, seconds["low"], seconds["high"], color=colour, linewidth=1.2)
        name = f"$\\sigma$ = {sigma:g}"
        right.plot(seconds["median"], height, marker, color=colour, markersize=4, label=name)
    left.set_yticks(range(len(variants)), [title(*variant) for variant in variants])
    left.invert_yaxis()
    left.set_xlim(left=-0.02 * max(1.0, float(table["evaluations_per_sample"].max())))
    left.set_xlabel("Evaluations of the diffusion model per sample")
    right.set_xscale("log")
    right.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    right.xaxis.set_major_formatter("{x:g}")
    right.xaxis.set_minor_formatter(NullFormatter())
    right.set_xlabel(f"Seconds per image, {PAPER_N:,} samples\non {shorten(table['device'].iloc[0], 44)}")
    for axis in (left, right):
        axis.tick_params(axis="y", length=0)
        axis.grid(color="0.9", linewidth=0.5)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=len(sigmas))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say what is drawn."""
    least, most = table["images_timed"].min(), table["images_timed"].max()
    timed = f"{most} image{'s' if most > 1 else ''}" if least == most else f"{least} to {most} images"
    return (
        "What a sample costs. Left: evaluations of the diffusion model per sample, which don't depend on the machine; "
        "a method without a diffusion model has 0. Right: seconds that one image takes, scaled to the paper's 10,000 "
        f"samples: median of {timed} with quartiles, on {table['device'].iloc[0]}, without the first image of "
        "each job where it has several. Other work on the machine shows on the right and not on the left. Methods that "
        "are contained in another (one vote in five, ADDS without unguided denoising in ADDS) are drawn once; their "
        "time is that of their own part."
    )
