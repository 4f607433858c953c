"""What a run will cost before it is begun: network evaluations and GPU-hours per method.

Evaluations follow from the methods' steps, operations per evaluation from the networks themselves (built without
memory, on torch's meta device), seconds from what has been measured or from a stated speed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from adds.classifiers import SmallClassifier, import_timm
from adds.denoiser import build_unet
from adds.methods.base import Query
from adds.methods.densepure import entry
from adds.naming import in_order, label
from adds.privacy import PrivacyFilter
from adds.schedule import Grid, Schedule, evenly_spaced

TERA = 1e12


@dataclass(frozen=True)
class Work:
    """Evaluations per sample: of the diffusion model and of the classifier."""

    diffusion: float
    classifier: float


def guided_steps(grid: Grid, *, sigma: float, guidance_scale: float) -> int:
    """Return after how many steps ADDS has spent its budget, where the variance is the least of its range.

    Less noise makes guidance dearer, so this is the fewest that are to be expected, and the estimate of what
    follows them the highest.
    """
    if guidance_scale == 0:
        return len(grid) - 1
    budget = PrivacyFilter(sigma=sigma, shape=(1, 1, 1, 1))
    for taken, step in enumerate(range(len(grid) - 1, 0, -1), start=1):
        std = torch.full((1, 1, 1, 1), float(grid.log_variance_min[step])).mul(0.5).exp()
        budget.spend(scale=guidance_scale, coef_x0=float(grid.coef_x0[step]), std=std)
        if bool(budget.exhausted()):
            return taken
    return len(grid) - 1


def work_per_sample(method: str, schedule: Schedule, grid: Grid, query: Query) -> Work:
    """Return what one sample costs. Votes share all steps up to the first evaluation after they part."""
    if method == "rs":
        return Work(0, 1)
    if method == "carlini":
        return Work(1, 1)
    if method == "densepure":
        _, step = entry(schedule, grid, query)
        return Work(1 + query.votes * step, query.votes)
    guided = guided_steps(grid, sigma=query.sigma, guidance_scale=query.guidance_scale)
    if method == "adds_oneshot":
        return Work(guided + 1, 1)
    left = len(grid) - 1 - guided
    return Work(guided + 1 + query.votes * left, query.votes if left else 1)


def operations(network: nn.Module, *inputs: torch.Tensor) -> int:
    """Count the floating-point operations of one evaluation (a multiplication and an addition are two)."""
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        network.eval()(*inputs)
    return int(counter.get_total_flops())


def operations_of(diffusion: Mapping[str, Any], classifier: Mapping[str, Any]) -> Work:
    """Return the operations of one evaluation of the configured diffusion model, and of the classifier."""
    unet = diffusion["unet"]
    shape = (1, unet["in_channels"], unet["image_size"], unet["image_size"])
    with torch.device("meta"):
        states, timesteps = torch.empty(shape), torch.zeros(1)
        of_unet = operations(build_unet(unet), states, timesteps)
        if classifier["kind"] == "small":
            return Work(of_unet, operations(SmallClassifier(classifier["classes"]), states))
    timm = import_timm()
    name = classifier["name"]
    if ":" in name:  # the hub would have to be asked which architecture it is: leave the classifier out
        return Work(of_unet, 0)
    with torch.device("meta"):
        network = timm.create_model(name, pretrained=False)
        size = timm.data.resolve_model_data_config(network)["input_size"]
        return Work(of_unet, operations(network, torch.empty(1, *size)))


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


def estimate(
    config: Mapping[str, Any],
    settings: Sequence[tuple[str, float, int]],
    leaders: Iterable[tuple[str, int]],
    counts: Iterable[Path | str] = (),
) -> pd.DataFrame:
    """Estimate every setting (method, sigma, votes) of a configuration: one row each.

    ``hours_alone`` is what its jobs would take with nothing shared; ``hours`` is zero for those that read the
    samples of their family's leader. ``measured`` tells whether seconds per sample come from ``counts``.
    """
    diffusion, sampling = config["diffusion"], config["sampling"]
    schedule = Schedule.named(diffusion["schedule"], diffusion["timesteps"])
    grid = schedule.respaced(evenly_spaced(diffusion["steps"], len(schedule)))
    each = operations_of(diffusion, config["classifier"])
    measured = measured_seconds(counts)
    images, leading = config["dataset"]["images"], set(leaders)
    jobs = -(-images // config["images_per_job"])
    blank = torch.zeros(1, 1, 1)
    rows = []
    for method, sigma, votes in settings:
        scale = config["guidance_scale"].get(str(sigma), 0.0)
        start = (config["methods"].get("densepure") or {}).get("start", "grid")
        work = work_per_sample(method, schedule, grid, Query(blank, sigma, votes, scale, start))
        samples = images * (sampling["n0"] + sampling["n"])
        tera = (work.diffusion * each.diffusion + work.classifier * each.classifier) / TERA
        seconds = measured.get((method, sigma, votes))
        rows.append(
            {
                "method": method,
                "sigma": sigma,
                "votes": votes,
                "jobs": jobs,
                "samples": samples,
                "evaluations_per_sample": work.diffusion,
                "evaluations": samples * work.diffusion,
                "teraflop_per_sample": tera,
                "measured": seconds is not None,
                "seconds_per_sample": tera / config["estimate"]["tflops"] if seconds is None else seconds,
                "leads": (method, votes) in leading,
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
    return table


def summary(table: pd.DataFrame, config: Mapping[str, Any]) -> str:
    """Write the estimate for the terminal: a row per method, the total, and what it rests on."""
    lines = [
        "| method | jobs | evaluations per sample | evaluations | hours | hours alone |",
        "|---|---|---|---|---|---|",
    ]
    for method, votes in in_order(zip(table["method"], table["votes"], strict=True)):
        own = table[(table["method"] == method) & (table["votes"] == votes)]
        per_sample = " / ".join(f"{value:g}" for value in own["evaluations_per_sample"])
        lines.append(
            f"| {label(method, votes)} | {own['jobs'].sum():,} | {per_sample} | {own['evaluations'].sum():,.0f} "
            f"| {own['hours'].sum():,.1f} | {own['hours_alone'].sum():,.1f} |"
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
        f"{config['dataset']['images']} images x {sampling['n0'] + sampling['n']:,} samples{most}. "
        f"Evaluations per sample stand for sigma {sigmas}. Hours are of one device, from {basis}.",
        "Hours alone: what the jobs would take if methods of one family didn't share their samples.",
    ]
    if ":" in str(config["classifier"]["name"]) and not table["measured"].all():
        lines.append("The classifier's own operations are not counted: the hub says what it is only on download.")
    return "\n".join(lines)
