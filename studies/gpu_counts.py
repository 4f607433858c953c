"""What a GPU would do, counted without one: bytes and operators of the paper's network, waits and memory of ADDS.

Bytes, operators and memory are counted as tensors are read, written and held (`adds.monitor.demand`); waits on a
pretended GPU (`tests.pretend_cuda`), which computes everything on the CPU. Nothing here is a time.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from tests.pretend_cuda import pretend_cuda
from torch import Tensor, nn

from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule
from adds.models.embedded import embedded_pipeline
from adds.models.fast_unet import accelerate, halve
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.models.unet import build_unet
from adds.monitor.demand import CASTS, GIB, NORMS, Demand, counted, demand_of, demand_of_classifier, demand_of_diffusion
from adds.registry import METHODS, READERS
from adds.sampling.counting import Request
from adds.sampling.sampler import Sampler
from studies.benchmark import MODELS, Table, markdown

HEADING = "## On a GPU, counted without one"
PAPER = Path("config/config.yaml")
BATCHES = (4, 8, 16, 32)
SIDE, ROWS = 64, 128
VOTES, SIGMA = 5, 1.0
WAITED = 326
"""Counted on the last commit before waits were gathered, c26d245."""


def guided_diffusions_half(network: Any) -> None:
    """Let a network compute in half precision as guided_diffusion does, with norms in single."""
    network.convert_to_fp16()
    network.dtype = torch.float16


def of_the_network(settings: Mapping[str, Any]) -> Table:
    """Count a batch of the paper's diffusion model: as guided_diffusion has it, accelerated, and normalised in half."""
    changes: dict[str, list[Callable[[Any], None]]] = {
        "guided_diffusion's own, half precision": [guided_diffusions_half],
        "with fused attention and folded upsampling": [accelerate, guided_diffusions_half],
        "and norms in half precision: as jobs have it": [accelerate, halve],
    }
    rows, unet, n = [], settings["unet"], settings["batch_size"]
    for name, steps in changes.items():
        with torch.device("meta"):
            network = build_unet(unet)
            for step in steps:
                step(network)
            side = unet["image_size"]
            demand = demand_of(network, torch.empty(n, unet["in_channels"], side, side), torch.zeros(n))
        rows.append(_row(name, demand))
    return rows


def _row(name: str, demand: Demand) -> dict[str, Any]:
    def gigabytes(names: set[str]) -> float:
        return sum(demand.bytes_of[name] for name in names) / 1e9

    return {
        "the paper's UNet, a batch of 32": name,
        "TFLOP": demand.operations / 1e12,
        "GB moved": demand.moved / 1e9,
        "of these casts": gigabytes(CASTS),
        "norms": gigabytes(NORMS),
        "operators": demand.operators,
        "peak GiB": demand.peak / GIB,
    }


def waits() -> tuple[Table, int]:
    """Count by place how often the CPU waits for the GPU in a chunk of ADDS with 5 votes, on a digit; and in all."""
    with pretend_cuda() as counts:
        device = torch.device("cuda")
        loaded = embedded_pipeline(MODELS)
        assert isinstance(loaded.denoiser.network, nn.Module)
        assert isinstance(loaded.classifier.classifier, nn.Module)
        loaded.classifier.classifier.to(device)
        denoiser = Denoiser(loaded.denoiser.network.to(device), loaded.denoiser.schedule, batch_size=32, device=device)
        image = np.random.default_rng(0).uniform(size=(1, 8, 8)).astype(np.float32)
        sampler = Sampler("adds", replace(loaded, denoiser=denoiser), sigma=SIGMA, votes=VOTES)
        counts.clear()
        sampler.draw([Request(Picture.of(image), "estimation", 0, 32)])
    places: Counter[tuple[str, str]] = Counter()
    for (why, line), number in counts.waits.items():
        places[line.split(":")[0], why] += number
    table = [{"in": file, "why": why, "waits": number} for (file, why), number in places.most_common()]
    return table, sum(counts.waits.values())


def bytes_per_coordinate(method: str, votes: int, options: Mapping[str, str] | None = None) -> float:
    """Count the bytes that a chunk of a method holds at most besides the networks, per coordinate of its samples."""
    schedule = Schedule.named("linear", 1000)
    grid = schedule.evenly(20)

    def unet(x_t: Tensor, _timesteps: Tensor) -> Tensor:
        return torch.cat([x_t, torch.zeros_like(x_t)], dim=1)

    def classifier(images: Tensor) -> Tensor:
        return images.flatten(1)[:, :2]

    batched = BatchedClassifier(classifier, classes=2)
    readers: dict[str, BatchedClassifier] = dict.fromkeys(READERS, batched)
    pipeline = Pipeline(Denoiser(unet, schedule, batch_size=ROWS), batched, grid, readers)
    image = np.random.default_rng(0).uniform(size=(3, SIDE, SIDE)).astype(np.float32)
    asked = {name: 1.0 for name, record in METHODS.items() if record.is_reader}
    sampler = Sampler(method, pipeline, sigma=SIGMA, votes=votes, options=options or {}, readers=asked)
    with counted() as operators:
        sampler.draw([Request(Picture.of(image), "estimation", 0, ROWS)])
    return operators.peak / (ROWS * image.size)


def memory(config: Mapping[str, Any]) -> Table:
    """Count what jobs of the paper's configuration need for each batch size, with chunks of four batches."""
    diffusion, classifier = config["diffusion"], config["classifier"]
    unet = diffusion["unet"]
    shape = (unet["in_channels"], unet["image_size"], unet["image_size"])
    votes = {"carlini": 1, "densepure": VOTES, "adds": VOTES}
    per_coordinate = {name: bytes_per_coordinate(name, of_it) for name, of_it in votes.items()}
    rows = []
    for batch in BATCHES:
        demand = demand_of_diffusion({**diffusion, "batch_size": batch}, half=True)
        # Under autocast its weights stay in single precision.
        of_classifier = demand_of_classifier({**classifier, "batch_size": batch}, shape, half=False)
        assert of_classifier is not None
        chunk = 4 * batch
        states = {name: chunk * np.prod(shape) * each / GIB for name, each in per_coordinate.items()}
        networks = max(demand.peak + of_classifier.weights, of_classifier.peak + demand.weights) / GIB
        rows.append(
            {
                "diffusion.batch_size": batch,
                "sampling.chunk_size": chunk,
                "networks, GiB": networks,
                **{f"{METHODS[name].title}, GiB in all": float(networks + found) for name, found in states.items()},
            }
        )
    return rows


def text() -> str:
    """Count everything and write it down."""
    config = yaml.safe_load(PAPER.read_text())
    by_place, in_all = waits()
    parts = [
        HEADING,
        "Written by `python -m studies.gpu_counts`: counts, not times ([gpu.md](gpu.md)).",
        markdown(of_the_network(config["diffusion"])),
        f"A chunk of 32 samples of ADDS with {VOTES} votes waits {in_all} times for the GPU. It waited {WAITED} times, "
        "counted likewise, when every check was read by itself and trajectories were told apart by masks:",
        markdown(by_place),
        "Memory of jobs: one network at its largest, the other's weights, a chunk's samples at their largest, 5 votes:",
        markdown(memory(config)),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    """Count, and put the result at the end of the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m studies.gpu_counts", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/benchmark.md"))
    output = parser.parse_args().output
    written = text()
    print(written)
    before = output.read_text().partition(HEADING)[0].rstrip()
    output.write_text(f"{before}\n\n{written}")


if __name__ == "__main__":
    main()
