"""How fast the pieces are, as ratios measured side by side in one run: `make bench`.

Machines are shared and noisy, so what is compared is run in turns, and the median of the turns' ratios counts.
Both sides keep their freed memory (`adds.machine.memory`); what that brings has a ratio of its own.
"""

import argparse
import copy
import dataclasses
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import yaml
from guided_diffusion.unet import QKVAttentionLegacy
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.utils.flop_counter import FlopCounterMode

from adds.data.digits import load_split
from adds.data.images import Picture
from adds.diffusion.denoiser import Network
from adds.diffusion.schedule import model_sigma, to_model
from adds.methods.privacy import squared_budget, unit_cost
from adds.models.classifiers.small import SmallClassifier
from adds.models.classifiers.timm import TimmClassifier, TimmDescription
from adds.models.compiled import CompiledNetwork
from adds.models.embedded import embedded_pipeline
from adds.models.fast_unet import FusedAttention, UpsampledConvolution, accelerate
from adds.models.pipeline import BatchedClassifier, Classifier, Pipeline
from adds.models.training import training_process
from adds.models.unet import build_unet, randomize
from adds.models.weights import load_weights, made_by
from adds.registry import METHODS, Variant, title
from adds.sampling.counting import Request, Tally
from adds.sampling.sampler import Sampler

MODELS, COMPILED = Path("weights/digits"), Path("resources/benchmark/compiled")
DIFFUSION, CLASSIFIER = MODELS / "diffusion.safetensors", MODELS / "classifier.safetensors"
SIGMA = 0.6
GUIDANCE_SCALE = 0.8
BATCH = 128
CLASSIFIER_BATCH = 256
"""The embedded classifier's own best. The usual loop has one for both networks, and for RS this one."""
SAMPLES, CHUNK = 512, 2048
SAMPLES_OF_RS = 4096
"""A long job's share of what is done once per chunk; RS would be over too soon."""
TURNS = 5

JOB = "import adds.sampling.job"
DRAWING_JOB = f"{JOB}, adds.models.pipeline, adds.sampling.sampler"

FIRST_EVALUATION = f"""
{DRAWING_JOB}
import torch
from pathlib import Path
from adds.models.embedded import embedded_pipeline
torch.set_num_threads(1)
pipeline = embedded_pipeline("{MODELS}", compiled=Path("{COMPILED}") if {{compiled}} else None)
pipeline.denoiser.predict(torch.zeros(2, 1, 8, 8), pipeline.grid, 1)
"""

EVALUATIONS = f"""
import time, torch
from pathlib import Path
from adds.machine.memory import keep_freed_memory
from adds.models.unet import load_diffusion
from adds.models.weights import made_by
torch.set_num_threads(1)
if {{kept}}:
    keep_freed_memory()
settings = {{{{"unet": made_by("{DIFFUSION}")["unet"], "half_precision": False}}}}
compiled = Path("{COMPILED}") if {{compiled}} else None
network = load_diffusion("{DIFFUSION}", settings, torch.device("cpu"), compiled, 128)
states = torch.randn(128, 1, 8, 8), torch.full((128,), 500.0)
with torch.inference_mode():
    for evaluation in range(110):
        if evaluation == 10:
            started = time.perf_counter()
        network(*states)
print(time.perf_counter() - started)
"""

METHODS_TITLE, PLANNING_TITLE = "Every method against the usual loop", "Snakemake's planning"

COMPARED = ("rs", *(name for name, record in METHODS.items() if record.origin == "paper"))
"""The methods that a loop is usually written for."""

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


def network_paths(plain: Network, accelerated: Network, compiled: Network) -> Table:
    """Compare guided_diffusion's own code with the fast path: the embedded UNet, the paper's, and its parts."""
    small = torch.randn(BATCH, 1, 8, 8), torch.full((BATCH,), 500.0)
    large = torch.randn(1, 3, 256, 256), torch.full((1,), 500.0)
    qkv, features = torch.randn(4, 4 * 3 * 64, 1024), torch.randn(1, 512, 64, 64)
    convolution = nn.Conv2d(512, 512, 3, padding=1)
    folded = UpsampledConvolution(convolution)
    legacy, fused = QKVAttentionLegacy(4), FusedAttention(4)
    paper, fast_paper = paper_unets()

    def upsample_and_convolve() -> Tensor:
        convolved: Tensor = convolution(interpolate(features, scale_factor=2, mode="nearest"))
        return convolved

    pairs: list[tuple[str, Callable[[], Tensor], Callable[[], Tensor], int]] = [
        ("embedded UNet, not compiled", lambda: plain(*small), lambda: accelerated(*small), TURNS),
        ("embedded UNet, compiled", lambda: plain(*small), lambda: compiled(*small), TURNS),
        ("the paper's UNet (random weights)", lambda: paper(*large), lambda: fast_paper(*large), 1),
        ("its attention over 1,024 tokens", lambda: legacy(qkv), lambda: fused(qkv), TURNS),
        ("its convolution after upsampling 64 x 64", upsample_and_convolve, lambda: folded(features), TURNS),
    ]
    rows: Table = []
    with torch.inference_mode():
        for name, slow, fast, turns in pairs:
            seconds, fast_seconds = in_turns(slow, fast, turns=turns)
            expected = slow()
            error = float((fast() - expected).abs().max() / expected.abs().max())
            rows.append(
                {
                    "what": name,
                    "times as fast": ratio(seconds, fast_seconds),
                    "largest difference, relative": error,
                }
            )
    return rows


def kept_memory() -> Table:
    """Compare a network whose process keeps its freed memory with one whose process doesn't."""

    def seconds(compiled: bool, kept: bool) -> float:
        program = EVALUATIONS.format(compiled=compiled, kept=kept)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return float(done.stdout)

    rows: Table = []
    for name, compiled in (("embedded UNet, not compiled", False), ("embedded UNet, compiled", True)):
        default, kept = zip(*((seconds(compiled, False), seconds(compiled, True)) for _ in range(TURNS)), strict=True)
        rows.append({"what": name, "times as fast": ratio(list(default), list(kept))})
    return rows


def paper_unets() -> tuple[nn.Module, nn.Module]:
    """Return the paper's UNet with random weights, as guided_diffusion has it and accelerated."""
    settings = yaml.safe_load(Path("config/config.yaml").read_text())["diffusion"]["unet"]
    with torch.device("meta"):
        network = build_unet(settings)
    network = network.to_empty(device="cpu").eval().requires_grad_(False)
    randomize(network)
    fast = copy.deepcopy(network)
    accelerate(fast)
    return network, fast.requires_grad_(False)


def machine_limit(compiled: Network) -> Table:
    """Compare the compiled network's operations per second with those of a large matrix product."""
    x_t, timesteps = torch.randn(BATCH, 1, 8, 8), torch.full((BATCH,), 500.0)
    matrix = torch.randn(1024, 1024)
    with FlopCounterMode(display=False) as counter:
        build_unet(made_by(DIFFUSION)["unet"])(x_t, timesteps)
    with torch.inference_mode():
        product, network = in_turns(lambda: matrix @ matrix, lambda: compiled(x_t, timesteps), turns=20)
    peak = 2 * 1024**3 / statistics.median(product)
    reached = counter.get_total_flops() / statistics.median(network)
    return [
        {"what": "product of 1,024 x 1,024 matrices", "GFLOP per second": peak / 1e9, "share": 1.0},
        {"what": "embedded UNet, compiled", "GFLOP per second": reached / 1e9, "share": reached / peak},
    ]


@dataclasses.dataclass(frozen=True)
class Usual:
    """What a loop as it is usually written needs: both networks as they are, and the schedule's name."""

    network: Network
    classifier: Classifier
    schedule: str


def peers_loop(
    usual: Usual,
    method: str,
    votes: int,
    picture: Picture,
    pipeline: Pipeline,
    *,
    samples: int,
    batch: int,
) -> Callable[[], None]:
    """Return a loop as it is usually written: batch by batch p_sample to the end, classify, vote, count.

    Nothing is shared between votes but ADDS's guided part, and a batch goes on until its last trajectory is done.
    """
    schedule, grid = pipeline.denoiser.schedule, pipeline.grid
    process = training_process(usual.schedule, len(schedule), kept=grid.timesteps)
    clean = to_model(torch.as_tensor(picture.pixels))

    def start(count: int) -> tuple[Tensor, int]:
        noised = clean + model_sigma(SIGMA) * torch.randn(count, *clean.shape)
        first = schedule.first_as_noisy_as(SIGMA, among=grid.timesteps)
        step = grid.timesteps.index(first)
        return float(grid.alphas_bar[step]) ** 0.5 * noised, step

    def finish(x_t: Tensor, step: int) -> Tensor:
        for remaining in range(step, -1, -1):
            t = torch.full((len(x_t),), remaining)
            x_t = process.p_sample(usual.network, x_t, t, clip_denoised=True)["sample"]
        return x_t

    def guided(count: int) -> tuple[Tensor, int]:
        x_t = torch.randn(count, *clean.shape)
        budget = torch.full(x_t.shape, squared_budget(SIGMA), dtype=torch.float64)
        for step in range(len(grid) - 1, 0, -1):
            t = torch.full((count,), step)
            out = process.p_mean_variance(usual.network, x_t, t, clip_denoised=True)
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
            return [clean + model_sigma(SIGMA) * torch.randn(count, *clean.shape)]
        if method == "carlini":
            x_t, step = start(count)
            t = torch.full((count,), step)
            return [process.p_mean_variance(usual.network, x_t, t, clip_denoised=True)["pred_xstart"]]
        x_t, step = start(count) if method == "densepure" else guided(count)
        if method == "adds_oneshot":
            t = torch.full((count,), step)
            return [process.p_mean_variance(usual.network, x_t, t, clip_denoised=True)["pred_xstart"]]
        return [finish(x_t, step) for _ in range(votes)]

    def loop() -> None:
        counts = np.zeros(pipeline.classifier.classes, dtype=int)
        with torch.inference_mode():
            for _ in range(0, samples, batch):
                ballots = torch.stack([usual.classifier(x).argmax(1) for x in purify(batch)])
                predictions = ballots.mode(dim=0).values if votes > 1 else ballots[0]
                for prediction in predictions.numpy():
                    counts[prediction] += 1

    return loop


def compare(sampler: Sampler, theirs: Callable[[], None], picture: Picture, samples: int, turns: int) -> dict[str, Any]:
    """Compare a method's loop with the usual one; say how fast ours is and what is outside networks."""

    def ours() -> Tally:
        return sampler.count(picture, stage="estimation", limit=samples)

    usual, seconds = in_turns(theirs, ours, turns=turns)
    networks = (sampler.pipeline.denoiser.batches, sampler.pipeline.classifier.batches)
    before = sum(network.seconds for network in networks)
    started = time.perf_counter()
    evaluations = ours().evaluations
    total = time.perf_counter() - started
    return {
        "method": title(sampler.method, sampler.votes),
        "samples per second": samples / statistics.median(seconds),
        "evaluations per second": evaluations / statistics.median(seconds),
        "times as fast as the usual loop": ratio(usual, seconds),
        "% outside networks": 100 * (1 - (sum(network.seconds for network in networks) - before) / total),
    }


def methods_table(usual: Usual) -> Table:
    """Compare methods with the usual loop on the embedded networks, and RS on the paper's classifier too."""
    picture = Picture.of(load_split()[1].images[0])
    rows: Table = []
    for method in COMPARED:
        for votes in (1, 5) if METHODS[method].takes_votes else (1,):
            pipeline = embedded_pipeline(MODELS, batch_size=BATCH, compiled=COMPILED)
            pipeline.classifier.batches.size = CLASSIFIER_BATCH
            samples, batch = (SAMPLES_OF_RS, CLASSIFIER_BATCH) if method == "rs" else (SAMPLES, BATCH)
            sampler = Sampler(method, pipeline, SIGMA, votes, GUIDANCE_SCALE, chunk_size=CHUNK)
            theirs = peers_loop(usual, method, votes, picture, pipeline, samples=samples, batch=batch)
            rows.append(compare(sampler, theirs, picture, samples, TURNS))
    return [*rows, rs_on_the_papers_classifier(usual.schedule)]


def rs_on_the_papers_classifier(schedule: str) -> dict[str, Any]:
    """Compare RS on a classifier and images of the paper's size, with random weights and pixels."""
    settings = yaml.safe_load(Path("config/config.yaml").read_text())
    half = (0.5,) * 3
    description = TimmDescription(settings["classifier"]["name"].split(".")[0], 1000, (512, 512), half, half)
    classifier = TimmClassifier(description).eval().requires_grad_(False)
    batched = BatchedClassifier(classifier, classes=description.classes, batch_size=1)
    pipeline = dataclasses.replace(embedded_pipeline(MODELS), classifier=batched)
    picture = Picture.of(torch.rand(3, 256, 256))
    theirs = peers_loop(
        Usual(pipeline.denoiser.network, classifier, schedule), "rs", 1, picture, pipeline, samples=2, batch=1
    )
    row = compare(Sampler("rs", pipeline, SIGMA), theirs, picture, samples=2, turns=1)
    return {**row, "method": "RS, the paper's classifier (random weights)"}


def families() -> Table:
    """Compare the evaluations of a family of methods that draws its samples once with those of each alone."""
    picture = Picture.of(load_split()[1].images[0])
    rows: Table = []
    for method, members in (
        ("densepure", [Variant("densepure", 1), Variant("densepure", 5)]),
        ("adds", [Variant("adds", 1), Variant("adds", 5), Variant("adds_oneshot", 1)]),
    ):
        pipeline = embedded_pipeline(MODELS, compiled=COMPILED)
        for sigma in (0.4, 0.6, 0.8):
            leader = Sampler(method, pipeline, sigma, 5, GUIDANCE_SCALE)
            chunk = leader.draw([Request(picture, "estimation", 0, SAMPLES)])[0]
            alone = []
            for member in members:
                tally = Tally(np.zeros(pipeline.classifier.classes, dtype=np.int64))
                tally.add(chunk, member, SAMPLES)
                alone.append(tally.evaluations / SAMPLES)
            shared = (chunk.shared_evaluations + chunk.vote_evaluations) / SAMPLES
            rows.append(
                {
                    "family": ", ".join(title(*member) for member in members),
                    "sigma": sigma,
                    "evaluations per sample, each alone": sum(alone),
                    "shared": shared,
                    "% saved": 100 * (1 - shared / sum(alone)),
                }
            )
    return rows


START_UP = {
    "imports of a job whose samples are on record": JOB,
    "imports of a job that draws": DRAWING_JOB,
    "the same, to its first evaluation, compiled": FIRST_EVALUATION.format(compiled=True),
    "the same, not compiled": FIRST_EVALUATION.format(compiled=False),
}


def start_up() -> Table:
    """Measure a certify job's seconds from the start of its process."""

    def seconds(program: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        return time.perf_counter() - started

    return [
        {"what": name, "seconds": statistics.median(seconds(program) for _ in range(3))}
        for name, program in START_UP.items()
    ]


def peak_memory() -> Table:
    """Measure a job's largest resident memory against the number of samples and against the batch size."""
    rows: Table = []
    settings = [(samples, 64) for samples in (256, 1024, 4096)] + [(4096, batch) for batch in (256, 1024, 4096)]
    for samples, batch in settings:
        command = [sys.executable, "-m", "studies.benchmark", "--memory-of", str(samples), str(batch)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append({"samples": samples, "batch size": batch, "MiB": float(done.stdout.split()[-1])})
    return rows


def memory_of(samples: int, batch: int) -> float:
    """Draw samples in chunks of the batch size and return this process's largest resident memory in MiB."""
    pipeline = embedded_pipeline(MODELS, batch_size=batch, compiled=COMPILED)
    sampler = Sampler("carlini", pipeline, SIGMA, chunk_size=batch)
    sampler.count(Picture.of(load_split()[1].images[0]), stage="estimation", limit=samples)
    # Not getrusage's: a new process inherits that from the one that started it.
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    if peak is None:
        raise RuntimeError("this system doesn't tell the largest memory of a process")
    return int(peak[1]) / 1024


def planning(scratch: Path) -> Table:
    """Measure how long Snakemake plans the paper's run, and 50,000 images in shards of several sizes."""
    rows: Table = []
    images = pd.DataFrame({"number": range(50_000), "filename": "x", "label": 0, "wnid": "n", "name": "x"})
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


NETWORKS = ("compile_diffusion", "check_models")
"""The rules by which all networks are there, and tested."""


def workflow_times(scratch: Path) -> Table:
    """Measure the wall time of the workflow (RS and Carlini at one sigma) against the number of images.

    It runs where the networks are there already but no sample is on record.
    """
    rows: Table = []
    folder = scratch / "workflow"
    for images in (24, 48, 96):
        changes = {
            "dataset": {"images": images, "list": str(Path("config/digits.csv").resolve())},
            "diffusion": {"weights": str(DIFFUSION.resolve())},
            "classifier": {"weights": str(CLASSIFIER.resolve())},
            "sigmas": [SIGMA],
            "methods": {"densepure": None, "adds": None, "adds_oneshot": None},
            "sampling": {"mode": "fixed", "n0": 90, "n": 2000, "chunk_size": 360},
        }
        (scratch / "workflow.yaml").write_text(json.dumps(changes))
        files = ["config/config.yaml", "config/digits.yaml", str(scratch / "workflow.yaml")]
        command = ["snakemake", "results/digits/certificates.csv", "--cores", "1", "--directory", str(folder)]
        command += ["--configfile", *files]
        subprocess.run([*command, "--until", *NETWORKS], capture_output=True, check=True)
        shutil.rmtree(folder / "results", ignore_errors=True)
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
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
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure everything, with the networks of the embedded experiment, and write the tables and the plot."""
    parser = argparse.ArgumentParser(prog="python -m studies.benchmark", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/benchmark.md"))
    parser.add_argument("--scratch", type=Path, default=Path("results/benchmark"))
    parser.add_argument("--memory-of", type=int, nargs=2, metavar=("SAMPLES", "BATCH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        print(memory_of(*arguments.memory_of))
        return
    settings = made_by(DIFFUSION)
    plain = build_unet(settings["unet"]).eval().requires_grad_(False)
    load_weights(plain, DIFFUSION)
    plain_classifier = SmallClassifier().eval().requires_grad_(False)
    load_weights(plain_classifier, CLASSIFIER)
    accelerated = embedded_pipeline(MODELS).denoiser.network
    compiled = embedded_pipeline(MODELS, compiled=COMPILED).denoiser.network
    if not isinstance(compiled, CompiledNetwork):
        parser.exit(1, "the network isn't compiled for this machine: see the warning above\n")
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    measured: dict[str, Callable[[], Table]] = {
        "The network against guided_diffusion's own code": lambda: network_paths(plain, accelerated, compiled),
        "Freed memory that is kept against glibc's default": kept_memory,
        "The network against the machine's limit": lambda: machine_limit(compiled),
        METHODS_TITLE: lambda: methods_table(Usual(plain, plain_classifier, settings["schedule"])),
        "Families that draw their samples once": families,
        "From the start of a job's process": start_up,
        "Largest memory of a job": peak_memory,
        "Wall time of the workflow": lambda: workflow_times(arguments.scratch),
        PLANNING_TITLE: lambda: planning(arguments.scratch),
    }
    sections = {}
    for heading, measure in measured.items():
        sections[heading] = measure()
        print(f"## {heading}\n\n{markdown(sections[heading])}", flush=True)
    text = f"# Benchmark\n\nWritten by `make bench` on {machine()}.\n"
    text += "".join(f"\n## {heading}\n\n{markdown(rows)}" for heading, rows in sections.items())
    text += f"\n![ratios and planning]({arguments.output.stem}.png)\n"
    arguments.output.write_text(text)
    plot(sections[METHODS_TITLE], sections[PLANNING_TITLE], arguments.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
