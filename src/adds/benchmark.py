"""How fast the pieces are, as ratios measured side by side in one run: `make bench`.

Machines are shared and noisy, so what is compared is run in turns, and the median of the turns' ratios counts.
"""

import argparse
import json
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import torch
from guided_diffusion.unet import QKVAttentionLegacy
from torch import Tensor

from adds.assets import embedded_pipeline
from adds.denoiser import Network, build_unet, load_weights
from adds.digits import load_split
from adds.fastpath import Compiled, FusedAttention
from adds.methods import METHODS
from adds.methods.base import Pipeline
from adds.naming import STEPPING, VOTING, label
from adds.privacy import squared_budget, unit_cost
from adds.sampling import Sampler
from adds.schedule import model_sigma, to_model
from adds.training import training_process

SIGMA = 0.6
GUIDANCE_SCALE = 0.8
BATCH = 128
SAMPLES = 512
TURNS = 5

Table = list[dict[str, Any]]


def in_turns(*contenders: Callable[[], object], turns: int = TURNS) -> list[list[float]]:
    """Run the contenders one after the other, again and again; return the seconds of each of their turns."""
    seconds: list[list[float]] = [[] for _ in contenders]
    for contender in contenders:
        contender()  # to warm up
    for _ in range(turns):
        for taken, contender in zip(seconds, contenders, strict=True):
            started = time.perf_counter()
            contender()
            taken.append(time.perf_counter() - started)
    return seconds


def ratio(slow: list[float], fast: list[float]) -> float:
    """Return how many times faster the second is: the median over turns that stood side by side."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def network_paths(plain: Network, fused: Network, compiled: Network) -> Table:
    """Compare guided_diffusion's own code with the fast path, on the embedded UNet and on long attention."""
    x_t, timesteps = torch.randn(BATCH, 1, 8, 8), torch.full((BATCH,), 500.0)
    qkv = torch.randn(4, 4 * 3 * 64, 1024)
    legacy, fast = QKVAttentionLegacy(4), FusedAttention(4)
    rows: Table = []
    with torch.inference_mode():
        seconds = in_turns(*(lambda n=network: n(x_t, timesteps) for network in (plain, fused, compiled)))
        expected = plain(x_t, timesteps)
        for name, network, taken in (
            ("UNet, fused attention", fused, seconds[1]),
            ("UNet, fused attention and compiled", compiled, seconds[2]),
        ):
            error = float((network(x_t, timesteps) - expected).abs().max())
            rows.append({"what": name, "times as fast": ratio(seconds[0], taken), "largest difference": error})
        taken, fused_taken = in_turns(lambda: legacy(qkv), lambda: fast(qkv))
        error = float((legacy(qkv) - fast(qkv)).abs().max())
    name = "attention over 1,024 tokens, fused"
    rows.append({"what": name, "times as fast": ratio(taken, fused_taken), "largest difference": error})
    return rows


def peers_loop(
    method: str, votes: int, network: Network, pipeline: Pipeline, schedule_name: str, image: Tensor
) -> Callable[[], None]:
    """Return a loop as it is usually written: batch by batch p_sample to the end, classify, vote, count.

    Nothing is shared between votes but ADDS's guided part, and a batch goes on until its last trajectory is done.
    """
    schedule, grid = pipeline.denoiser.schedule, pipeline.grid
    process = training_process(schedule_name, len(schedule), kept=grid.timesteps)
    clean = to_model(image)

    def start(count: int) -> tuple[Tensor, int]:
        noised = clean + model_sigma(SIGMA) * torch.randn(count, *image.shape)
        first = schedule.first_as_noisy_as(SIGMA, among=grid.timesteps)
        step = grid.timesteps.index(first)
        return float(grid.alphas_bar[step]) ** 0.5 * noised, step

    def finish(x_t: Tensor, step: int) -> Tensor:
        for remaining in range(step, -1, -1):
            t = torch.full((len(x_t),), remaining)
            x_t = process.p_sample(network, x_t, t, clip_denoised=True)["sample"]
        return x_t

    def guided(count: int) -> tuple[Tensor, int]:
        x_t = torch.randn(count, *image.shape)
        budget = torch.full(x_t.shape, squared_budget(SIGMA), dtype=torch.float64)
        for step in range(len(grid) - 1, 0, -1):
            t = torch.full((count,), step)
            out = process.p_mean_variance(network, x_t, t, clip_denoised=True)
            std = torch.exp(0.5 * out["log_variance"])
            price = unit_cost(coef_x0=float(grid.coef_x0[step]), std=std)
            scale = torch.sqrt(budget / price).clamp(max=GUIDANCE_SCALE)
            budget = (budget - scale.square() * price).clamp(min=0)
            x0 = out["pred_xstart"] + scale.float() * (clean - out["pred_xstart"])
            mean, _, _ = process.q_posterior_mean_variance(x0, x_t, t)
            x_t = mean + std * torch.randn_like(x_t)
            if bool((budget < 1e-9).all()):
                return x_t, step - 1
        return x_t, 0

    def purify(count: int) -> list[Tensor]:
        if method == "rs":
            return [clean + model_sigma(SIGMA) * torch.randn(count, *image.shape)]
        if method == "carlini":
            x_t, step = start(count)
            t = torch.full((count,), step)
            return [process.p_mean_variance(network, x_t, t, clip_denoised=True)["pred_xstart"]]
        x_t, step = start(count) if method == "densepure" else guided(count)
        if method == "adds_oneshot":
            t = torch.full((count,), step)
            return [process.p_mean_variance(network, x_t, t, clip_denoised=True)["pred_xstart"]]
        return [finish(x_t, step) for _ in range(votes)]

    def loop() -> None:
        counts = torch.zeros(pipeline.classifier.classes, dtype=torch.long)
        with torch.inference_mode():
            for first in range(0, SAMPLES, BATCH):
                count = min(BATCH, SAMPLES - first)
                ballots = torch.stack([pipeline.classifier.classifier(x).argmax(1) for x in purify(count)])
                counts += torch.bincount(ballots.mode(dim=0).values, minlength=len(counts))

    return loop


def methods_table(plain: Network, compiled: Network, folder: Path, schedule_name: str) -> Table:
    """Compare every method's own loop with the usual one; say how fast ours is and what is outside networks."""
    image = load_split()[1].images[0]
    rows: Table = []
    for method in METHODS:
        pipeline = embedded_pipeline(folder)
        if method in STEPPING:
            pipeline.denoiser.network = compiled
        votes = 5 if method in VOTING else 1
        inside = [0.0]
        pipeline.denoiser.network = timed(pipeline.denoiser.network, inside)
        pipeline.classifier.classifier = timed(pipeline.classifier.classifier, inside)
        sampler = Sampler(method, pipeline, SIGMA, votes, GUIDANCE_SCALE, chunk_size=SAMPLES)

        def ours(sampler: Sampler = sampler) -> None:
            sampler.count(image, index=0, stage="estimation", limit=SAMPLES)

        theirs = peers_loop(method, votes, plain, embedded_pipeline(folder), schedule_name, image)
        usual, own = in_turns(theirs, ours, turns=3)
        inside[0], before, started = 0.0, pipeline.denoiser.evaluations, time.perf_counter()
        ours()
        total = time.perf_counter() - started
        rows.append(
            {
                "method": label(method, votes),
                "samples per second": SAMPLES / statistics.median(own),
                "evaluations per second": (pipeline.denoiser.evaluations - before) / statistics.median(own),
                "times as fast as the usual loop": ratio(usual, own),
                "share outside networks": 1 - inside[0] / total,
            }
        )
    return rows


def timed(function: Callable[..., Tensor], seconds: list[float]) -> Callable[..., Tensor]:
    """Add the time that a function takes to ``seconds[0]``."""

    def call(*arguments: Tensor) -> Tensor:
        started = time.perf_counter()
        value = function(*arguments)
        seconds[0] += time.perf_counter() - started
        return value

    return call


def start_up(folder: Path) -> Table:
    """Measure a certify job's seconds from the start of its process to its first evaluation."""
    program = (
        "import time; s = time.perf_counter(); import adds.counting; from adds.assets import embedded_pipeline; "
        "import torch; from adds.schedule import Schedule; i = time.perf_counter(); "
        f"p = embedded_pipeline({str(folder)!r}); "
        "p.denoiser.predict(torch.zeros(1, 1, 8, 8), p.grid, 1); e = time.perf_counter(); print(i - s, e - i)"
    )
    done = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    return [
        {"what": name, "seconds": statistics.median(float(run[column]) for run in done)}
        for column, name in enumerate(("imports", "weights and first evaluation"))
    ]


def peak_memory(folder: Path) -> Table:
    """Measure a job's largest resident memory against the number of samples and against the batch size."""
    rows: Table = []
    settings = [(samples, 64) for samples in (256, 1024, 4096)] + [(4096, batch) for batch in (256, 1024, 4096)]
    for samples, batch in settings:
        command = [sys.executable, "-m", "adds.benchmark", "--memory-of", str(samples), str(batch)]
        done = subprocess.run([*command, "--models", str(folder)], capture_output=True, text=True, check=True)
        rows.append({"samples": samples, "batch size": batch, "MiB": float(done.stdout.split()[-1])})
    return rows


def memory_of(folder: Path, samples: int, batch: int) -> float:
    """Draw samples in chunks of the batch size and return this process's largest resident memory in MiB."""
    pipeline = embedded_pipeline(folder)
    pipeline.denoiser.batches.size = pipeline.classifier.batches.size = batch
    sampler = Sampler("carlini", pipeline, SIGMA, chunk_size=batch)
    sampler.count(load_split()[1].images[0], index=0, stage="estimation", limit=samples)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def planning(scratch: Path) -> Table:
    """Measure how long Snakemake plans the paper's run, and 50,000 images in shards of several sizes."""
    rows: Table = []
    images = pd.DataFrame({"index": range(50_000), "filename": "x", "label": 0, "wnid": "n", "name": "x"})
    scratch.mkdir(parents=True, exist_ok=True)
    images.to_csv(scratch / "all.csv", index=False)
    for count, shard in ((25, 1), (250, 1), (2500, 1), (50_000, 1000), (50_000, 250), (50_000, 100)):
        changes = {"dataset": {"images": count, "list": str(scratch / "all.csv")}, "images_per_job": shard}
        (scratch / "plan.yaml").write_text(json.dumps(changes))
        command = ["snakemake", "--dry-run", "--quiet", "all", "--configfile", str(scratch / "plan.yaml")]
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        rows.append(
            {
                "images": count,
                "images per job": shard,
                "jobs": 18 * -(-count // shard),
                "seconds": time.perf_counter() - started,
            }
        )
    return rows


def workflow_times(scratch: Path) -> Table:
    """Measure the wall time of the workflow (RS and Carlini at one sigma) against the number of images."""
    rows: Table = []
    for images in (24, 48, 96):
        changes = {
            "experiment": f"benchmark{images}",
            "dataset": {"images": images},
            "sigmas": [SIGMA],
            "methods": {"densepure": None, "adds": None, "adds_oneshot": None},
            "sampling": {"n": 2000},
        }
        (scratch / "workflow.yaml").write_text(json.dumps(changes))
        target = f"results/benchmark{images}/certificates.csv"
        files = ["--configfile", "config/digits.yaml", str(scratch / "workflow.yaml")]
        started = time.perf_counter()
        subprocess.run(["snakemake", "--cores", "1", *files, "--", target], capture_output=True, check=True)
        rows.append({"images": images, "seconds": time.perf_counter() - started})
    return rows


def markdown(rows: Table) -> str:
    """Write rows as a Markdown table."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.1e}" if 0 < value < 1e-3 else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(text(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Name the machine: processor and versions."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    name = found[1] if found else platform.processor()
    return f"{name}, one thread, torch {torch.__version__}, Python {platform.python_version()}"


def plot(methods: Table, plans: Table, path: Path) -> None:
    """Draw the ratios to the usual loop, and planning time against the number of jobs."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    names = [row["method"] for row in methods]
    left.barh(names, [row["times as fast as the usual loop"] for row in methods])
    left.axvline(1, color="black", linewidth=0.8)
    left.invert_yaxis()
    left.set_xlabel("times as fast as the usual loop")
    for single, marker, name in ((True, "o-", "one image per job"), (False, "s--", "50,000 images in shards")):
        chosen = sorted((row["jobs"], row["seconds"]) for row in plans if (row["images per job"] == 1) == single)
        right.plot(*zip(*chosen, strict=True), marker, label=name)
    right.set(xlabel="jobs", ylabel="seconds to plan", xscale="log", yscale="log")
    right.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure everything and write the tables and the plot."""
    parser = argparse.ArgumentParser(prog="python -m adds.benchmark", description=main.__doc__)
    parser.add_argument(
        "--models", type=Path, default=Path("resources/digits"), help="the embedded run's networks"
    )
    parser.add_argument("--output", type=Path, default=Path("docs/benchmark.md"))
    parser.add_argument("--scratch", type=Path, default=Path("results/benchmark"))
    parser.add_argument("--memory-of", type=int, nargs=2, metavar=("SAMPLES", "BATCH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        print(memory_of(arguments.models, *arguments.memory_of))
        return
    settings = json.loads((arguments.models / "diffusion.json").read_text())
    plain = build_unet(settings["unet"]).eval().requires_grad_(False)
    load_weights(plain, arguments.models / "diffusion.pt")
    fused = embedded_pipeline(arguments.models).denoiser.network
    compiled = Compiled(fused)  # type: ignore[arg-type]
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    methods = methods_table(plain, compiled, arguments.models, settings["schedule"])
    plans = planning(arguments.scratch)
    sections = [
        ("The network against guided_diffusion's own code", network_paths(plain, fused, compiled)),
        ("Every method against the usual loop", methods),
        ("From the start of a job's process to its first evaluation", start_up(arguments.models)),
        ("Largest memory of a job", peak_memory(arguments.models)),
        ("Wall time of the workflow", workflow_times(arguments.scratch)),
        ("Snakemake's planning", plans),
    ]
    text = f"# Benchmark\n\nWritten by `make bench` on {machine()}.\n"
    text += "".join(f"\n## {title}\n\n{markdown(rows)}" for title, rows in sections)
    text += f"\n![ratios and planning]({arguments.output.stem}.png)\n"
    arguments.output.write_text(text)
    plot(methods, plans, arguments.output.with_suffix(".png"))
    print(text)


if __name__ == "__main__":
    main()
