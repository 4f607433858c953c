"""What a run will cost before it is begun: network evaluations and GPU-hours per method.

Evaluations follow from the methods' steps, operations per evaluation from the networks themselves (built without
memory, on torch's meta device), seconds from what has been measured or from a stated speed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.experiment import Experiment
from adds.methods.base import Query, Work, method
from adds.models.pipeline import classifier_kind
from adds.models.unet import build_unet
from adds.registry import in_order, title

TERA = 1e12


def operations(network: nn.Module, *inputs: torch.Tensor) -> int:
    """Count the floating-point operations of one evaluation (a multiplication and an addition are two)."""
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        network.eval()(*inputs)
    return int(counter.get_total_flops())


def operations_of(networks: Mapping[str, Any]) -> Work:
    """Return the operations of one evaluation of the configured diffusion model, and of the classifier.

    A classifier that nothing is known of before it is there counts as 0.
    """
    unet = networks["diffusion"]["unet"]
    shape = (1, unet["in_channels"], unet["image_size"], unet["image_size"])
    with torch.device("meta"):
        of_unet = operations(build_unet(unet), torch.empty(shape), torch.zeros(1))
    architecture = getattr(classifier_kind(networks["classifier"]["kind"]), "architecture", None)
    found = architecture(networks["classifier"], shape) if architecture else None
    if found is None:
        return Work(of_unet, 0)
    network, size = found
    return Work(of_unet, operations(network, torch.empty(size, device="meta")))


def measured_seconds(counts: Iterable[Path | str]) -> dict[tuple[str, float, int], float]:
    """Return seconds per sample of the settings that have counts already: each as if it had run alone."""
    parts = [pd.read_parquet(path) for path in counts]
    if not parts:
        return {}
    table = pd.concat(parts)
    table = table.assign(samples=table["n0"] + table["n"]).groupby(["method", "sigma", "votes"])
    sums = table[["seconds", "samples"]].sum()
    return {
        (str(method), float(sigma), int(votes)): float(row.seconds / row.samples)
        for (method, sigma, votes), row in sums.iterrows()
    }


def estimate(experiment: Experiment, counts: Iterable[Path | str] = ()) -> pd.DataFrame:
    """Estimate every setting of an experiment: one row each.

    ``hours_alone`` is what its jobs would take with nothing shared; ``hours`` is zero for those that read the
    samples of their family's leader. ``measured`` tells whether seconds per sample come from ``counts``.
    """
    config = experiment.config
    diffusion, sampling = config["diffusion"], config["sampling"]
    schedule = Schedule.named(diffusion["schedule"], diffusion["timesteps"])
    grid = schedule.respaced(evenly_spaced(diffusion["steps"], len(schedule)))
    each = operations_of({"diffusion": diffusion, "classifier": config["classifier"]})
    measured = measured_seconds(counts)
    samples = experiment.images * (sampling["n0"] + sampling["n"])
    blank = torch.zeros(1, 1, 1)
    rows = []
    for setting in experiment.settings():
        sigma, votes = float(setting.sigma), setting.votes
        scale = config["guidance_scale"].get(setting.sigma, 0.0)
        query = Query(blank, sigma, votes, scale, experiment.options(setting.method))
        work = method(setting.method).work(schedule, grid, query)
        tera = (work.diffusion * each.diffusion + work.classifier * each.classifier) / TERA
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
                "teraflop_per_sample": tera,
                "measured": seconds is not None,
                "seconds_per_sample": tera / config["estimate"]["tflops"] if seconds is None else seconds,
                "leads": experiment.leads(setting),
            }
        )
    table = pd.DataFrame(rows)
    known = table[table["measured"] & (table["teraflop_per_sample"] > 0)]
    if len(known):  # settings without a measurement run at the speed of those with one
        rate = known["teraflop_per_sample"].sum() / known["seconds_per_sample"].sum()
        guessed = table["teraflop_per_sample"] / rate
        table["seconds_per_sample"] = table["seconds_per_sample"].where(table["measured"], guessed)
    table["hours_alone"] = table["samples"] * table["seconds_per_sample"] / 3600
    table["hours"] = table["hours_alone"].where(table["leads"], 0.0)
    table.attrs["classifier_unknown"] = each.classifier == 0
    return table


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
        lines.append(
            f"| {title(name, votes)} | {rows['jobs'].sum():,} | {per_sample} | {rows['evaluations'].sum():,.0f} "
            f"| {rows['hours'].sum():,.1f} | {rows['hours_alone'].sum():,.1f} |"
        )
    total = table[["jobs", "evaluations", "hours", "hours_alone"]].sum()
    lines.append(
        f"| total | {total['jobs']:,.0f} | | {total['evaluations']:,.0f} | {total['hours']:,.1f} "
        f"| {total['hours_alone']:,.1f} |"
    )
    speed, sampling = config["estimate"], config["sampling"]
    measured = f"{table['measured'].sum()} of {len(table)} settings; the others at the same speed"
    basis = (
        f"measured seconds per sample ({measured})"
        if table["measured"].any()
        else f"operations of the networks at {speed['tflops']:g} TFLOPS ({speed['device']})"
    )
    sigmas = " / ".join(f"{sigma:g}" for sigma in config["sigmas"])
    most = " at most: sequential sampling stops earlier" if sampling["mode"] == "sequential" else ""
    lines += [
        "",
        f"{experiment.images} images x {sampling['n0'] + sampling['n']:,} samples{most}. "
        f"Evaluations per sample stand for sigma {sigmas}. Hours are of one device, from {basis}.",
        "Hours alone: what the jobs would take if methods of one family didn't share their samples.",
    ]
    if (table["votes"] > 1).any():
        lines.append("Several votes take so many evaluations at most: those that can't change the outcome aren't cast.")
    if table.attrs["classifier_unknown"] and not table["measured"].all():
        lines.append("The classifier's own operations are not counted: what it is shows only when it is there.")
    return "\n".join(lines)
