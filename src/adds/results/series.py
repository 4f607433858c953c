"""Several experiments side by side: one table of how they differ, one figure over what was changed."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.certificates.certificate import least_certifying_n
from adds.registry import OPTIONS, in_order, title
from adds.results.accuracy import credited_radius, in_percent, is_certified, mean_interval, true_class_shares
from adds.results.certified import by_bound, radii_of_first_samples
from adds.results.figures.style import TEXT_WIDTH, line
from adds.sampling.job import KEY, SETTING

CHANGED = ("guidance_scale", *OPTIONS)
"""What experiments of a series may differ in, as counts record it."""

MEASURES = {
    "certified_percent": "Certified\nat r = 0 (%)",
    "radius": "Mean certified\nradius",
    "p_true_percent": "Probability of\nthe true class (%)",
    "stop_timestep": "Timestep where\nthe budget is spent",
}


def rows_of(folder: Path, bound: str) -> pd.DataFrame:
    """Return a row per setting and image of an experiment: KEY, what may have been changed, measures, evaluations.

    Evaluations are of the diffusion model, per sample.
    """
    certified = by_bound(pd.read_parquet(folder / "certificates.parquet"), bound)
    rows = certified[[*KEY, *CHANGED]].assign(certified=is_certified(certified), radius=credited_radius(certified))
    counts = pd.read_parquet(folder / "counts.parquet")
    known = true_class_shares(counts).assign(
        stop_timestep=counts["stop_timestep"],
        evaluations=counts["evaluations"] / (counts["n0"] + counts["n"]),
        samples_of_radius=counts["n"],
    )
    if (counts["stopped"] != "fixed").any():
        rows = rows.drop(columns="radius")
        known = known.assign(**_of_first_samples(counts, float(certified["alpha"].iloc[0]), bound))
    return in_percent(rows.merge(known, on=KEY), ["certified", "p_true"])


def _of_first_samples(counts: pd.DataFrame, alpha: float, bound: str) -> dict[str, "pd.Series[float] | float"]:
    """Return the radii of the first samples, whatever made sampling stop, and how many these are; none if too few."""
    first = min(map(sum, counts["counts_first"]))
    if first < least_certifying_n(alpha, bound=bound):
        return {"radius": float("nan"), "samples_of_radius": first}
    return {"radius": radii_of_first_samples(counts, alpha=alpha, bound=bound), "samples_of_radius": first}


def side_by_side(results: Mapping[str, Path], bound: str = "cohen") -> pd.DataFrame:
    """Return the rows of several experiments, each with its experiment's name."""
    parts = [rows_of(folder, bound).assign(experiment=name) for name, folder in results.items()]
    return pd.concat(parts, ignore_index=True)


def comparison(images: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Return a row per experiment and setting: means, and paired differences to the reference experiment.

    Differences are over the images that both have, with Student's 95% intervals; those of percents are points.
    """
    rows = []
    for setting, group in images.groupby(SETTING):
        for name, own in group.groupby("experiment", sort=False):
            row = dict(zip(SETTING, setting, strict=True)) | {"experiment": name, "images": len(own)}
            row |= {column: own[column].iloc[0] for column in CHANGED}
            row |= {measure: own[measure].mean() for measure in MEASURES}
            row["samples_of_radius"] = own["samples_of_radius"].iloc[0]
            other = group[group["experiment"] == reference].set_index("number")
            for measure in ("certified_percent", "radius", "p_true_percent"):
                paired = (own.set_index("number")[measure] - other[measure]).dropna()
                ends = mean_interval(paired.to_numpy()) if len(paired) else (float("nan"),) * 3
                row |= dict(zip(_compared(measure), ends, strict=True))
            rows.append(row)
    return pd.DataFrame(rows)


def _compared(measure: str) -> list[str]:
    """Return the columns of a measure's difference to the reference and its interval."""
    name, percent, _ = measure.partition("_percent")
    return [f"{name}_{end}{'_points' if percent else ''}" for end in ("difference", "low", "high")]


def markdown(table: pd.DataFrame, reference: str) -> str:
    """Write the comparison: means, and in brackets differences to the reference with their intervals."""
    lines = []
    for sigma in sorted(table["sigma"].unique()):
        lines += [
            f"| sigma {sigma:g} | experiment | certified (%) | radius | p of the true class (%) | budget spent at |"
        ]
        lines += ["|---|---|---|---|---|---|"]
        at_sigma = table[table["sigma"] == sigma]
        for method, votes in in_order(zip(at_sigma["method"], at_sigma["votes"], strict=True)):
            for _, row in at_sigma[(at_sigma["method"] == method) & (at_sigma["votes"] == votes)].iterrows():
                cells = [
                    _cell(row, "certified_percent", 1),
                    _cell(row, "radius", 3),
                    _cell(row, "p_true_percent", 1),
                ]
                if row["experiment"] == reference:
                    cells = [cell.partition(" ")[0] for cell in cells]
                spent_at = "" if pd.isna(row["stop_timestep"]) else f"t = {row['stop_timestep']:.0f}"
                told = " | ".join([*cells, spent_at])
                lines.append(f"| {title(method, votes)} | {row['experiment']} | {told} |")
        lines.append("")
    lines.append(caption(table, reference))
    return "\n".join(lines) + "\n"


def caption(table: pd.DataFrame, reference: str) -> str:
    """Say what is compared."""
    samples = " or ".join(f"{n:,}" for n in sorted(table["samples_of_radius"].unique()))
    return (
        f"{table['images'].max()} images. In brackets paired differences to {reference}, with 95% intervals. Radii "
        f"are by the paper's bound from the first {samples} estimation samples of every image, 0 where wrong or "
        "abstained from."
    )


def _cell(row: "pd.Series[float]", measure: str, digits: int) -> str:
    if pd.isna(row[measure]):
        return ""
    difference, low, high = (f"{row[column]:+.{digits}f}" for column in _compared(measure))
    return f"{row[measure]:.{digits}f} ({difference} [{low}, {high}])"


def draw(table: pd.DataFrame) -> Figure:
    """Draw every measure that differs against what was changed: the guidance scale, or else the experiments' names.

    Markers are a method's own: hollow with one vote, full with several.
    """
    sigmas = sorted(table["sigma"].unique())
    numeric = table["guidance_scale"].nunique() > 1
    values = table.groupby(SETTING)[list(MEASURES)].agg(lambda measured: measured.round(3).nunique()).max()
    most = min(2, values.max())  # where no measure differs at all, every one that is known
    shown = {measure: name for measure, name in MEASURES.items() if values[measure] >= most}
    size = (TEXT_WIDTH, 1.0 + 1.4 * len(shown))
    figure, axes = plt.subplots(len(shown), len(sigmas), figsize=size, sharex="col", sharey="row", squeeze=False)
    for (measure, name), row in zip(shown.items(), axes, strict=True):
        for axis, sigma in zip(row, sigmas, strict=True):
            panel = table[table["sigma"] == sigma]
            for method, votes in in_order(zip(panel["method"], panel["votes"], strict=True)):
                curve = panel[(panel["method"] == method) & (panel["votes"] == votes)]
                look = line(method, votes)
                axis.plot(
                    curve["guidance_scale"] if numeric else curve["experiment"],
                    curve[measure],
                    color=look.colour,
                    dashes=look.dashes or (None, None),
                    linewidth=look.width if numeric else 0.8,
                    marker=look.marker,
                    markersize=4,
                    markerfacecolor="white" if votes == 1 else look.colour,
                    label=title(method, votes),
                )
            axis.margins(x=0.05 if numeric else 0.25, y=0.1)
            axis.tick_params(axis="x", rotation=0 if numeric else 30)
        row[0].set_ylabel(name)
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        axis.set_title(f"$\\sigma$ = {sigma:g}")
    if numeric:
        for axis in axes[-1]:
            axis.set_xlabel("Guidance scale")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
