"""What a run will cost before it is begun: network evaluations and GPU-hours per method.

Evaluations follow from the methods' steps, seconds from what a run or the check has measured, or else from the
operations and bytes of the networks on an assumed processor (`adds.monitor.speed`).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from adds.diffusion.schedule import Schedule
from adds.experiment import Experiment
from adds.methods.base import Query, method
from adds.monitor.expected import expected_samples, padding_warning
from adds.monitor.speed import Speed, assumed_speed
from adds.registry import OPTIONS, PAPER_N, PAPER_N0, in_order, title
from adds.sampling.job import SETTING
from adds.sampling.stopping import LABEL_QUESTIONS, Certified, Question, SampleSize, Stop

START_UP_SHARE = 0.05

CLASSIFICATION = 0.1
"""What a classification costs, in evaluations of the diffusion model: a guess, for the time left only."""


def evaluations_per_sample(setting: Mapping[str, Any], chain: Mapping[str, Any]) -> float:
    """Return how many evaluations of the diffusion model a sample is worth, of a setting as a plan lists it."""
    identity = setting["identity"]
    schedule = Schedule.named(chain["schedule"], chain["timesteps"])
    grid = schedule.evenly(chain["steps"])
    options = {option: identity[option] for option in OPTIONS if option in identity}
    scale, readers = identity.get("guidance_scale", 0.0), identity.get("readers", {})
    query = Query(identity["sigma"], setting["votes"], scale, options, readers)
    work = method(setting["method"]).work(schedule, grid, query)
    return float(work.diffusion + CLASSIFICATION * work.classifier)


def read_counts(files: Iterable[Path | str]) -> pd.DataFrame:
    """Read the counts that are there already."""
    parts = [pd.read_parquet(path) for path in files]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def measured_seconds(counts: pd.DataFrame) -> dict[tuple[str, float, int], float]:
    """Return seconds per sample of the settings that have counts already: each as if it had run alone."""
    if counts.empty:
        return {}
    table = counts.assign(samples=counts["n0"] + counts["n"]).groupby(SETTING)
    sums = table[["seconds", "samples"]].sum()
    return {
        (str(method), float(sigma), int(votes)): float(row.seconds / row.samples)
        for (method, sigma, votes), row in sums.iterrows()
    }


def estimate(experiment: Experiment, counts: pd.DataFrame | None = None, speed: Speed | None = None) -> pd.DataFrame:
    """Estimate every setting of an experiment: one row each, with its numbers of samples at most.

    ``hours_alone`` is what its jobs would take with nothing shared; ``hours`` is zero for those that read the
    samples of their family's leader. ``measured`` tells whether seconds per sample come from ``counts``; others follow
    from ``speed``, which is assumed unless it is given, and may be off by ``range``, in parts of them.
    """
    speed = speed or assumed_speed(experiment)
    config = experiment.config
    diffusion, sampling = config["diffusion"], config["sampling"]
    schedule = Schedule.named(diffusion["schedule"], diffusion["timesteps"])
    grid = schedule.evenly(diffusion["steps"])
    measured = measured_seconds(pd.DataFrame() if counts is None else counts)
    samples = experiment.images * (experiment.n0 + sampling["n"])
    rows = []
    for setting in experiment.settings():
        sigma, votes = float(setting.sigma), setting.votes
        scale = config["guidance_scale"].get(setting.sigma, 0.0)
        query = Query(sigma, votes, scale, experiment.options(setting.method), experiment.readers(setting.method))
        work = method(setting.method).work(schedule, grid, query)
        least, most = speed.of(work)
        seconds = measured.get((setting.method, sigma, votes))
        rows.append(
            {
                "method": setting.method,
                "sigma": sigma,
                "votes": votes,
                "jobs": len(experiment.shards()),
                "samples": samples,
                "evaluations_per_sample": work.diffusion,
                "evaluations": samples * work.diffusion,
                "measured": seconds is not None,
                "predicted": (least + most) / 2,
                "seconds_per_sample": (least + most) / 2 if seconds is None else seconds,
                "range": (most - least) / (most + least) if seconds is None and most else 0.0,
                "leads": experiment.leads(setting),
            }
        )
    table = pd.DataFrame(rows)
    known = table[table["measured"] & (table["predicted"] > 0)]
    if len(known):  # settings without a measurement are as far from their prediction as those with one
        guessed = table["predicted"] * known["seconds_per_sample"].sum() / known["predicted"].sum()
        table["seconds_per_sample"] = table["seconds_per_sample"].where(table["measured"], guessed)
        table["range"] = 0.0
    table["hours_alone"] = table["samples"] * table["seconds_per_sample"] / 3600
    table["hours"] = table["hours_alone"].where(table["leads"], 0.0)
    table.attrs |= {"classifier_unknown": speed.classifier is None, "origin": speed.origin}
    return table


def start_up(experiment: Experiment) -> float:
    """Return the hours that jobs take to load their networks; those that only read their leader's samples don't."""
    loading = sum(not experiment.reads_only(setting) for setting in experiment.settings()) * len(experiment.shards())
    return float(loading * experiment.config["estimate"]["start_up"] / 3600)


def expected_hours(experiment: Experiment, table: pd.DataFrame, expected: pd.DataFrame) -> "pd.Series[float]":
    """Return the hours that sampling is expected to take, by shape of the distribution (part, spread)."""
    joined = expected.merge(table[[*SETTING, "seconds_per_sample"]], on=SETTING)
    hours = joined["drawn"] * joined["seconds_per_sample"] * experiment.images / 3600
    return hours.groupby([joined["part"], joined["spread"]]).sum()


def better_job_size(experiment: Experiment, hours: float) -> int:
    """Return how many images a job needs so that loading networks takes at most a twentieth of the sampling."""
    per_job = START_UP_SHARE * hours / len(experiment.settings()) / experiment.images * 3600
    return min(experiment.images, math.ceil(float(experiment.config["estimate"]["start_up"]) / per_job))


@dataclass(frozen=True)
class Offer:
    """Something else that could be asked, with at most so many samples."""

    name: str
    questions: tuple[Question, ...]
    most: int = PAPER_N


OFFERS = (
    Offer("the label: majority, and top", tuple(LABEL_QUESTIONS.values())),
    Offer("the same with n = 2,000", tuple(LABEL_QUESTIONS.values()), most=2000),
    Offer("cohen at r = 0", (Certified("cohen", 0.0),)),
    Offer("pair at r = 0", (Certified("pair", 0.0),)),
    Offer("pair and cohen at r = 0", (Certified("pair", 0.0), Certified("cohen", 0.0))),
)


BUDGETS = (10, 50, 100, 500)
"""Hours for which it is told how many images they buy."""


def in_hours(hours: float) -> str:
    """Write hours: whole ones from ten on, two digits of less."""
    return f"{hours:,.0f}" if hours >= 9.95 else f"{hours:.2g}"


def sequential_summary(experiment: Experiment, table: pd.DataFrame, counts: pd.DataFrame, paper: pd.DataFrame) -> str:
    """Write what sequential sampling is expected to cost, for what was asked and for other questions."""
    sampling = experiment.config["sampling"]
    asked = SampleSize.from_settings(experiment.sampling())
    expected = expected_samples(experiment, asked, counts, paper)
    known = len(expected.drop_duplicates(SETTING)) if len(expected) else 0
    if known < len(table):
        return (
            f"Of {len(table) - known} of {len(table)} settings nothing is known that would tell how many samples they "
            "need: they have no counts yet, and the paper's tables don't have them."
        )
    hours, loading = expected_hours(experiment, table, expected), start_up(experiment)
    per_setting = expected.groupby(SETTING)[["alone", "drawn"]].mean().reset_index()
    joined = table.merge(per_setting, on=SETTING)
    joined["hours_expected"] = joined["drawn"] * joined["seconds_per_sample"] * experiment.images / 3600
    lines = ["| method | expected samples per image, by sigma | hours |", "|---|---|---|"]
    for name, votes in in_order(zip(joined["method"], joined["votes"], strict=True)):
        rows = joined[(joined["method"] == name) & (joined["votes"] == votes)]
        samples = " / ".join(f"{value:,.0f}" for value in rows["alone"])
        lines.append(f"| {title(name, votes)} | {samples} | {in_hours(rows['hours_expected'].sum())} |")
    total, per_job = hours.mean() + loading, experiment.config["images_per_job"]
    better = better_job_size(experiment, hours.mean())
    advice = f" images_per_job: {better} would do for a twentieth of the sampling." if better >= 2 * per_job else ""
    least, most_hours = in_hours(hours.min() + loading), in_hours(hours.max() + loading)
    lines += [
        "",
        f"Expected: {in_hours(total)} hours ({least} to {most_hours}), of which {in_hours(loading)} for loading "
        f"networks: {len(experiment.shards()) * len(experiment.settings()):,} jobs of {per_job} images, "
        f"{experiment.config['estimate']['start_up']:g} s each.{advice}",
        f"It rests on {_origin(experiment, counts)}. Samples that a family's leader has drawn cost the others nothing.",
    ]
    if total > BUDGETS[0]:
        lines.append(
            f"One image costs {in_hours(total / experiment.images)} hours in all settings: "
            f"{' / '.join(map(str, BUDGETS))} hours buy "
            + " / ".join(f"{budget * experiment.images / total:,.0f}" for budget in BUDGETS)
            + " images (dataset.images). Leave out methods or sigmas by the table above."
        )
    lines += [
        "",
        f"| what could be asked (alpha = {sampling['alpha']}, n = {PAPER_N:,}) | hours, expected | range |",
        "|---|---|---|",
    ]
    for offer in OFFERS:
        size = SampleSize(PAPER_N0, offer.most, sampling["alpha"], Stop(offer.questions))
        found = expected_hours(experiment, table, expected_samples(experiment, size, counts, paper))
        lines.append(
            f"| {offer.name} | {in_hours(found.mean())} | {in_hours(found.min())} to {in_hours(found.max())} |"
        )
    most = int(table["samples"].iloc[0] // experiment.images)
    lines.append(f"| a fixed run of {most:,} samples | {in_hours(table['hours'].sum())} | |")
    return "\n".join(lines)


def _origin(experiment: Experiment, counts: pd.DataFrame) -> str:
    counted = len(counts.drop_duplicates(SETTING)) if len(counts) else 0
    parts = [f"the counts of {counted} settings"] if counted else []
    if counted < len(experiment.settings()):
        parts.append(
            "made-up images that agree with the paper's two tables: the range is over six shapes of their distribution"
        )
    return " and on ".join(parts)


def _range(table: pd.DataFrame) -> list[str]:
    """Say how far off the hours may be, where a speed was assumed."""
    off = table["hours"] * table["range"]
    if not off.any():
        return []
    least, most = table["hours"].sum() - off.sum(), table["hours"].sum() + off.sum()
    return [
        f"That is {in_hours(least)} to {in_hours(most)} hours, by what the device reaches; `snakemake --cores 1 check` "
        "measures it, and the estimate takes its speed from there."
    ]


def summary(table: pd.DataFrame, experiment: Experiment) -> str:
    """Write the estimate for the terminal: a row per method, the total, and what it rests on."""
    config = experiment.config
    lines = [
        "| method | jobs | evaluations per sample | evaluations | hours | hours alone |",
        "|---|---|---|---|---|---|",
    ]
    for name, votes in in_order(zip(table["method"], table["votes"], strict=True)):
        rows = table[(table["method"] == name) & (table["votes"] == votes)]
        per_sample = " / ".join(f"{value:g}" for value in rows["evaluations_per_sample"])
        hours = in_hours(rows["hours"].sum()) if rows["leads"].any() else "shared"
        lines.append(
            f"| {title(name, votes)} | {rows['jobs'].sum():,} | {per_sample} | {rows['evaluations'].sum():,.0f} "
            f"| {hours} | {in_hours(rows['hours_alone'].sum())} |"
        )
    total = table[["jobs", "evaluations", "hours", "hours_alone"]].sum()
    lines.append(
        f"| total | {total['jobs']:,.0f} | | {total['evaluations']:,.0f} | {in_hours(total['hours'])} "
        f"| {in_hours(total['hours_alone'])} |"
    )
    sampling = config["sampling"]
    measured = f"{table['measured'].sum()} of {len(table)} settings; the others at the same speed"
    basis = f"measured seconds per sample ({measured})" if table["measured"].any() else table.attrs["origin"]
    sigmas = " / ".join(f"{sigma:g}" for sigma in config["sigmas"])
    most = " at most: sequential sampling stops earlier" if sampling["mode"] == "sequential" else ""
    each = table["samples"].iloc[0] // experiment.images
    lines += [
        "",
        f"{experiment.images} images x {each:,} samples{most}. "
        f"Evaluations per sample stand for sigma {sigmas}. Hours are of one device, from {basis}.",
        *_range(table),
        "Hours alone: what the jobs would take if methods of one family didn't share their samples.",
        f"Loading networks takes {in_hours(start_up(experiment))} hours more "
        f"({config['estimate']['start_up']:g} s a job).",
    ]
    if warning := padding_warning(experiment.plan(), experiment.machine()):
        lines.append(f"WARNING: {warning}.")
    if _range(table) and config["device"] == "cpu" and "cpu" not in config["estimate"]["device"].lower():
        lines.append(
            f"WARNING: device is cpu, and these are hours of what estimate describes, {config['estimate']['device']}. "
            "Run `snakemake --cores 1 check`, with the same --configfile: then they are this machine's."
        )
    if _range(table) and config["device"] != "cpu" and not config["diffusion"]["half_precision"]:
        lines.append("diffusion.half_precision is off: see that estimate.tflops is what the GPU reaches in single.")
    if (table["votes"] > 1).any():
        lines.append("Several votes take so many evaluations at most: those that can't change the outcome aren't cast.")
    if table.attrs["classifier_unknown"] and not table["measured"].all():
        lines.append("The classifier's own operations are not counted: what it is shows only when it is there.")
    return "\n".join(lines)
