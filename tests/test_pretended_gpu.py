"""What jobs do on a GPU, on a pretended one (`tests.pretend_cuda`): devices and dtypes fit, ballots are the CPU's."""

import inspect
import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scripts import (
    audit,
    certify,
    check_models,
    denoise,
    detail,
    draw_samples,
    follow_trajectory,
    obtain_diffusion,
    spend_budget,
)
from scripts import images as decode_images
from sklearn.datasets import load_digits
from studies.gpu_counts import guided_diffusions_half
from torch import Tensor, nn

from adds.data.images import Picture
from adds.diffusion.batching import Batches
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import Noise
from adds.diffusion.reverse import Continuations
from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.experiment import Experiment, Setting
from adds.methods import adds, adds_bridge, base, consensus, guidance, privacy, release
from adds.models import compiled
from adds.models import unet as diffusion
from adds.models.classifiers import kernel, python, small, timm
from adds.models.fast_unet import FusedAttention, halve
from adds.models.pipeline import BatchedClassifier, Pipeline, classifier_kind
from adds.models.unet import load_diffusion, load_unet, randomize
from adds.models.weights import WEIGHTS, describe_model, save_weights
from adds.registry import METHODS
from adds.sampling import sampler
from adds.sampling.counting import Request
from adds.sampling.ledger import Chunk
from adds.sampling.sampler import Sampler
from tests.conftest import TINY_UNET, random_unet, unet_pipeline
from tests.pretend_cuda import Counts, on_gpu, pretend_cuda
from tests.soundness.golden import READ
from tests.test_experiment import digits
from tests.workflow import PROJECT

CPU, GPU = torch.device("cpu"), torch.device("cuda")
PRECISIONS = pytest.mark.parametrize("half", [False, True], ids=["single", "half"])
UNET = {**TINY_UNET, "attention_resolutions": [4]}


@pytest.fixture
def gpu() -> Iterator[Counts]:
    with pretend_cuda() as counts:
        yield counts


# The pretence


def ones(*shape: int, **how: Any) -> Tensor:
    return torch.ones(*shape, **{"device": "cuda", **how})


HALF_IMAGE = {"dtype": torch.half}
REFUSED: dict[str, Callable[[], Any]] = {
    "a sum over two devices": lambda: ones(2) + torch.ones(2),
    "a join of two devices": lambda: torch.cat([ones(2), torch.ones(2)]),
    "a GPU's numbers added on the CPU": lambda: torch.ones(2).add_(ones(2)),
    "a GPU's indices of a CPU tensor": lambda: torch.ones(2)[torch.zeros(1, dtype=torch.long, device="cuda")],
    "CPU values put into a GPU tensor": lambda: ones(2).index_put_(
        (torch.tensor([0, 1], device="cuda"),), torch.ones(2)
    ),
    "a network that stayed on the CPU": lambda: nn.Linear(3, 3)(ones(1, 3)),
    "a network that is on the GPU alone": lambda: nn.Linear(3, 3).to("cuda")(torch.ones(1, 3)),
    "two dtypes in a product": lambda: ones(2, 2).half() @ ones(2, 2),
    "two dtypes in a layer": lambda: nn.Linear(3, 3).to("cuda")(ones(1, 3).double()),
    "two dtypes in a convolution": lambda: nn.Conv2d(2, 2, 3).to("cuda")(ones(1, 2, 4, 4, **HALF_IMAGE)),
    "two dtypes in a normalisation": lambda: nn.GroupNorm(1, 2).to("cuda")(ones(1, 2, 4, 4, **HALF_IMAGE)),
    "two dtypes in attention": lambda: nn.functional.scaled_dot_product_attention(
        *(ones(1, 1, 2, 2, dtype=dtype) for dtype in (torch.half, torch.half, torch.float))
    ),
    "a product of integers": lambda: ones(2, 2).long() @ ones(2, 2).long(),
    "a CPU's generator": lambda: torch.randn(2, generator=torch.Generator(), device="cuda"),
    "a second GPU": lambda: torch.zeros(1, device="cuda:1"),
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
def test_the_pretended_gpu_refuses(what, inference):
    with torch.inference_mode(inference), pytest.raises(RuntimeError, match=r"device|type|integers|indices"):
        REFUSED[what]()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("convert", [Tensor.numpy, np.asarray])
def test_the_pretended_gpu_has_no_numpy(convert):
    with pytest.raises(TypeError, match="to numpy"):
        convert(ones(2))
    assert convert(ones(2).cpu()).tolist() == [1, 1]


@pytest.mark.usefixtures("gpu")
def test_an_inference_tensor_can_t_be_written_to_outside():
    with torch.inference_mode():
        values = ones(2) + 1
        values += 1
    with pytest.raises(RuntimeError, match="inference tensor"):
        values += 1


def test_nothing_is_left_of_the_pretence():
    with pretend_cuda():
        left = ones(2)
        assert torch.cuda.is_available()
    assert not torch.cuda.is_available() or torch.version.cuda
    with pytest.raises(RuntimeError, match="after"):
        left + 1


@pytest.mark.usefixtures("gpu")
def test_the_pretended_gpu_computes():
    """What CUDA takes: numbers of the CPU, its indices, views that are written to, autocast; float16 overflows."""
    x = torch.arange(6.0, device="cuda").view(2, 3)
    assert x.is_cuda
    assert x.device == torch.device("cuda:0") != torch.device("cuda")
    assert (x + torch.tensor(1.0)).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert torch.where(x > 2, x, 0.0)[torch.tensor([1])].tolist() == [[3, 4, 5]]
    x[1:] = 2
    x[x == 0] = 7
    assert x.tolist() == [[7, 1, 2], [2, 2, 2]]
    layer = nn.Linear(3, 3).to(GPU)
    assert isinstance(layer.weight, nn.Parameter)
    with torch.autocast("cuda"):
        assert layer(x).dtype == torch.half
    large = torch.full((1, 8), 100.0, device="cuda", dtype=torch.half)
    assert (large @ large.T).tolist() == [[float("inf")]]
    assert all(map(on_gpu, (torch.zeros(2).to("cuda"), torch.as_tensor(0, device="cuda"), x.new_zeros(2))))
    assert not on_gpu(torch.zeros(2))


def test_kernels_bytes_and_waits_are_counted(gpu):
    x = ones(8)
    gpu.clear()
    y = (x.view(2, 4) + 1).half()
    assert gpu.kernels == {"add": 1, "_to_copy": 1}
    assert gpu.bytes == {"float32": 32 + 32 + 32, "float16": 16}
    assert not gpu.waits
    float(y.sum())
    torch.ones(3).to("cuda")
    y[y > 1].cpu()
    reasons = {"a number is read": 1, "copy to the GPU": 1, "copy to the CPU": 1, "index by a mask": 1}
    assert {reason: times for (reason, _), times in gpu.waits.items()} == reasons


# Methods


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """A file of weights for a UNet with attention."""
    path = tmp_path_factory.mktemp("unet") / "weights"
    save_weights(random_unet(UNET), path)
    return path


def pipeline_on(device: torch.device, weights: Path, schedule: Schedule, *, half: bool = False) -> Pipeline:
    """A pipeline of few steps, its diffusion model loaded as jobs load it."""
    network = load_diffusion(weights, {"unet": UNET, "half_precision": half}, device)
    pipeline = unet_pipeline(schedule, network, batch_size=16)
    pipeline.denoiser.device = device
    for classifier in (pipeline.classifier, *pipeline.readers.values()):
        classifier.classifier.to(device)
    return replace(pipeline, grid=schedule.respaced(evenly_spaced(8, 1000)))


def drawn(name: str, pipeline: Pipeline, image: Tensor, images: int, **options: str) -> list[Chunk]:
    """Some samples of some images, side by side, in both stages; five votes where there are votes."""
    votes = 5 if METHODS[name].takes_votes else 1
    draws = Sampler(name, pipeline, sigma=0.6, votes=votes, options=options, readers=READ)
    pictures = [Picture.of(image if number % 2 else 1 - image, number) for number in range(1, images + 1)]
    stages = ("estimation", "selection")
    return draws.draw([Request(picture, stages[picture.number % 2], 3, 4) for picture in pictures])


SAID = ("ballots", "stop_timestep", "spent_before")


def assert_same(found: list[Chunk], expected: list[Chunk]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert all(np.array_equal(getattr(one, field), getattr(other, field)) for field in SAID)
        assert one.contained.keys() == other.contained.keys()
        assert all(np.array_equal(one.contained[name], other.contained[name]) for name in one.contained)
        assert one.shared_evaluations == other.shared_evaluations
        assert one.vote_evaluations == other.vote_evaluations
        assert one.budget_share == pytest.approx(other.budget_share)


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("name", METHODS)
def test_ballots_are_the_cpus_in_single_precision(schedule, weights, image, name, images):
    expected = drawn(name, pipeline_on(CPU, weights, schedule), image, images)
    with pretend_cuda() as counts:
        assert_same(drawn(name, pipeline_on(GPU, weights, schedule), image, images), expected)
    assert counts.kernels
    assert counts.waits
    assert "float16" not in counts.bytes


@pytest.mark.parametrize("name", METHODS)
def test_nearly_all_ballots_are_the_cpus_in_half_precision(schedule, weights, image, name):
    expected = drawn(name, pipeline_on(CPU, weights, schedule, half=True), image, 3)
    with pretend_cuda() as counts:
        pipeline = pipeline_on(GPU, weights, schedule, half=True)
        counts.clear()
        found = drawn(name, pipeline, image, 3)
    ballots, others = (np.concatenate([chunk.ballots for chunk in chunks]) for chunks in (found, expected))
    assert ballots.shape == others.shape
    assert np.mean(ballots[:, 0] == others[:, 0]) > 0.8
    reads_unet = "diffusion" in METHODS[name].networks or METHODS[name].asks_readers
    assert ("float16" in counts.bytes) == reads_unet


OPTIONS = [
    (name, option, value)
    for name, method in METHODS.items()
    for option, values in method.options.items()
    for value in values[1:2]
]


@pytest.mark.parametrize(("name", "option", "value"), OPTIONS)
def test_so_they_are_with_every_option(schedule, weights, image, name, option, value):
    expected = drawn(name, pipeline_on(CPU, weights, schedule), image, 2, **{option: value})
    with pretend_cuda():
        assert_same(drawn(name, pipeline_on(GPU, weights, schedule), image, 2, **{option: value}), expected)


def test_ballots_tell_something(schedule, weights, image):
    """The tests above compare ballots that differ."""
    chunks = drawn("adds", pipeline_on(CPU, weights, schedule), image, 3)
    assert len(np.unique(np.concatenate([chunk.ballots for chunk in chunks]))) > 3


# What must hold


class Failing(nn.Module):
    """A diffusion model that gives infinity from some timestep on."""

    def __init__(self, network: Any, below: float) -> None:
        super().__init__()
        self.network, self.below = network, below

    def forward(self, x_t: Tensor, timesteps: Tensor) -> Tensor:
        return self.network(x_t, timesteps) * torch.where(timesteps < self.below, torch.inf, 1.0)[:, None, None, None]


def test_a_broken_network_is_noticed_before_anything_is_returned(schedule, weights, image):
    with pretend_cuda():
        pipeline = pipeline_on(GPU, weights, schedule)
        pipeline.denoiser.network = Failing(pipeline.denoiser.network, below=500)
        first = max(timestep for timestep in pipeline.grid.timesteps if timestep < 500)
        with pytest.raises(FloatingPointError, match=f"infinity at timestep {first}:"):
            drawn("adds", pipeline, image, 1)


def test_a_broken_classifier_is_noticed_before_anything_is_returned(schedule, weights, image):
    with pretend_cuda():
        pipeline = pipeline_on(GPU, weights, schedule)
        pipeline.classifier.classifier[-1].bias.fill_(torch.nan)
        with pytest.raises(FloatingPointError, match="NaN logits"):
            drawn("carlini", pipeline, image, 1)


def test_a_budget_that_is_exceeded_is_noticed_before_anything_is_returned(schedule, weights, image, monkeypatch):
    def generous(*, budget: Tensor, scale: float, **_: Tensor) -> Tensor:
        return torch.full_like(budget, scale)

    monkeypatch.setattr(privacy, "affordable_scale", generous)
    with pretend_cuda(), pytest.raises(privacy.BudgetExceededError, match="no result is written"):
        drawn("adds", pipeline_on(GPU, weights, schedule), image, 1)


def test_a_chunk_of_adds_waits_once_for_what_must_hold_and_once_a_guided_step(schedule, weights, image):
    """Reading the ballots, and which trajectories have which steps left, is what else a GPU is waited for."""
    with pretend_cuda() as counts:
        pipeline = pipeline_on(GPU, weights, schedule)
        counts.clear()
        drawn("adds", pipeline, image, 1)
    at: Counter[str] = Counter()
    for (_, line), number in counts.waits.items():
        at[line.split(":")[0]] += number
    assert at["checks.py"] == 1
    assert at["guidance.py"] <= len(pipeline.grid)  # a step each but the last, and a list of timesteps
    assert not {"privacy.py", "denoiser.py", "pipeline.py", "fast_unet.py"} & {file for file in at if at[file]}


# Networks


@PRECISIONS
@pytest.mark.parametrize("blocks", [{}, {"space_to_channels": 2, "predicts_v": True}], ids=["pixels", "blocks and v"])
def test_every_part_of_the_unet_runs(tmp_path, half, blocks):
    """Attention, upsampling folded into convolutions, and both up- and downsampling inside of residual blocks."""
    side = 32 * blocks.get("space_to_channels", 1)
    changes = {"image_size": side, "num_channels": 32, "attention_resolutions": [16], "resblock_updown": True, **blocks}
    settings = {"unet": {**TINY_UNET, **changes}, "half_precision": half}
    save_weights(random_unet(settings["unet"]), tmp_path / WEIGHTS)
    states = torch.randn(2, 1, side, side, generator=torch.Generator().manual_seed(0))
    timesteps = torch.tensor([10.0, 900])
    with torch.inference_mode():
        on_cpu = load_diffusion(tmp_path / WEIGHTS, settings, CPU)
        expected = on_cpu(states, timesteps)
        with pretend_cuda() as counts:
            network = load_diffusion(tmp_path / WEIGHTS, settings, GPU)
            found = network(states.to(GPU), timesteps.to(GPU)).cpu()
        in_single = load_unet(tmp_path / WEIGHTS, settings["unet"])(states, timesteps)
    assert {parameter.dtype for parameter in on_cpu.parameters()} == {torch.float32}
    assert torch.equal(expected, in_single), "half precision is for GPUs"
    assert {"convolution", "scaled_dot_product_attention"} <= counts.kernels.keys()
    assert any(name.endswith("folded.weight") for name, _ in network.named_parameters())
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02 if half else 1e-5)


def test_norms_in_half_precision_keep_to_its_error():
    """Of guided_diffusion's half precision, whose norms are in single, on a trained network and images with noise."""
    settings, weights = digits().config["diffusion"]["unet"], PROJECT / "weights/digits/diffusion.safetensors"
    images = torch.from_numpy(load_digits().images[:64] / 8 - 1).float()[:, None]
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    schedule = Schedule.named("linear", 1000)

    def errors(halve: Callable[[nn.Module], None]) -> list[float]:
        with pretend_cuda(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(diffusion, "halve", halve)
            networks = (load_unet(weights, settings), load_unet(weights, settings, device=GPU, half=True))
            found = []
            for timestep in (20, 200, 500, 900):
                kept = float(schedule.alphas_bar[timestep])
                x_t, timesteps = kept**0.5 * images + (1 - kept) ** 0.5 * noise, torch.full((64,), float(timestep))
                expected, rounded = (
                    network(x_t.to(device), timesteps.to(device)).cpu()
                    for network, device in zip(networks, (CPU, GPU), strict=True)
                )
                found.append(float((rounded - expected).square().mean().sqrt() / expected.square().mean().sqrt()))
        return found

    before, now = errors(guided_diffusions_half), errors(halve)
    assert all(0 < one < 1.3 * other for one, other in zip(now, before, strict=True))
    assert max(now) < 5e-3


def tiny_timm(monkeypatch, architecture: str, folder: Path) -> tuple[int, ...]:
    """Leave a timm model with random weights: a small one of its own, or a BEiT as the paper's.

    Return the shape of images that aren't of its size.
    """
    models = timm.import_timm()
    if architecture == "beit":
        from timm.models.beit import Beit

        size = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
        how = {"use_abs_pos_emb": False, "use_rel_pos_bias": True, "init_values": 0.1}
        monkeypatch.setattr(
            models, "create_model", lambda _name, *, num_classes, **_: Beit(**size, **how, num_classes=num_classes)
        )
    description = timm.TimmDescription(architecture, 10, (32, 32), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    torch.manual_seed(0)
    network = timm.TimmClassifier(description).network
    if architecture == "beit":
        randomize(network)  # with timm's initial weights it has no bias of attention
    save_weights(network, folder / WEIGHTS)
    describe_model(folder, asdict(description))
    return (3, 24, 24)


def leave(kind: str, folder: Path, monkeypatch) -> tuple[int, ...]:
    """Leave a classifier in a folder as the workflow does, with random weights; return the shape of its images."""
    generator = torch.Generator().manual_seed(0)
    if kind.startswith("timm"):
        return tiny_timm(monkeypatch, kind.removeprefix("timm "), folder)
    if kind == "small":
        network = small.SmallClassifier()
        randomize(network)
        save_weights(network, folder / WEIGHTS)
    elif kind == "kernel":
        parts = {"images": torch.rand(50, 64, generator=generator) * 2 - 1, "labels": torch.arange(50) % 10}
        reader = kernel.KernelReader(10, **parts, log_weights=torch.zeros(50), variance=torch.tensor(0.7))
        save_weights(reader, folder / WEIGHTS)
    else:
        code = "RANGE = (0, 1)\ndef build():\n    from tests.conftest import random_classifier\n"
        (folder / "mine.py").write_text(code + "    return random_classifier()\n")
        python.obtain({"file": str(folder / "mine.py"), "classes": 10, "shape": [1, 8, 8]}, folder)
    return (1, 8, 8)


@PRECISIONS
@pytest.mark.parametrize("kind", ["small", "kernel", "python", "timm test_resnet", "timm beit"])
def test_every_kind_of_classifier_gives_the_cpus_classes(tmp_path, monkeypatch, kind, half):
    shape, settings = leave(kind, tmp_path, monkeypatch), {"classes": 10, "half_precision": half}
    images = torch.rand(40, *shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    load = classifier_kind(kind.split()[0]).load
    expected = BatchedClassifier(load(tmp_path, settings, CPU), classes=10, batch_size=16).logits(images)
    with pretend_cuda() as counts:
        classifier = BatchedClassifier(load(tmp_path, settings, GPU), classes=10, batch_size=16)
        found, classes = classifier.logits(images.to(GPU)).cpu(), classifier.predict(images.to(GPU)).cpu()
    halved = half and kind.startswith("timm")
    assert found.dtype == torch.float32
    assert ("float16" in counts.bytes) == halved
    tolerance = (0.005 if halved else 1e-5) * float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    assert float(expected.std(dim=0).max()) > 5 * tolerance, "images differ"
    assert torch.equal(classes, found.argmax(dim=1))


# Memory


class Hungry:
    """A network whose batches don't fit into the GPU's memory if they are larger than ``most``."""

    def __init__(self, network: Callable[..., Tensor], most: int) -> None:
        self.network, self.most, self.refused = network, most, list[int]()

    def __call__(self, images: Tensor, *rest: Tensor) -> Tensor:
        if len(images) > self.most:
            self.refused.append(len(images))
            raise torch.OutOfMemoryError("CUDA out of memory [pretended GPU]")
        return self.network(images, *rest)


def hungry(pipeline: Pipeline, most: int) -> Pipeline:
    denoiser, classifier = pipeline.denoiser, pipeline.classifier
    return replace(
        pipeline,
        denoiser=Denoiser(Hungry(denoiser.network, most), denoiser.schedule, batch_size=8, device=denoiser.device),
        classifier=BatchedClassifier(Hungry(classifier.classifier, most), classes=10, batch_size=8),
    )


@PRECISIONS
def test_a_gpu_that_is_too_small_gets_smaller_batches_and_gives_the_same_ballots(schedule, weights, image, gpu, half):
    pipeline = pipeline_on(GPU, weights, schedule, half=half)
    starved = hungry(pipeline, 3)
    assert_same(drawn("adds", starved, image, 2), drawn("adds", pipeline, image, 2))
    assert starved.denoiser.network.refused == starved.classifier.classifier.refused == [8, 4]
    assert starved.denoiser.batches.size == starved.classifier.batches.size == 2, "once and for all"
    assert gpu.emptied == 4


def test_batches_are_timed_without_waiting_and_leave_nothing_behind(gpu):
    """Events of batches that are over don't pile up until a job ends."""
    batches = Batches(4)
    batches.apply(lambda rows: 2 * rows, ones(16))
    assert not gpu.waits
    over = torch.cuda.Event()
    over.record()
    over.synchronize()
    batches.apply(lambda rows: 2 * rows, ones(4))
    assert len(batches._timed) == 1
    gpu.clear()
    assert batches.seconds > 0
    assert sum(gpu.waits.values()) == 1
    assert not batches._timed


@pytest.mark.usefixtures("gpu")
def test_a_gpu_without_room_for_one_image_is_an_error(schedule, weights, image):
    with pytest.raises(torch.OutOfMemoryError):
        drawn("carlini", hungry(pipeline_on(GPU, weights, schedule), 0), image, 1)


# Jobs

SIGMA = "0.6"


class Files(dict[str, Any]):
    """A job's files by their names, as Snakemake gives them to scripts."""

    __getattr__ = dict.__getitem__


def experiment(device: str, *, half: bool = False) -> Experiment:
    """The tiny experiment on a device, with readers whose weights are given."""
    asking = {"votes": [1], "readers": ["rs_trained", "adds_bridge"], "weights": [1, 2], "bridges": "1"}
    return digits(
        device=device,
        jobs_per_gpu=20,  # this process keeps what it claims
        sigmas=[float(SIGMA)],
        diffusion={"half_precision": half, "steps": 8},
        methods={"rs_trained": {"votes": [1]}, "consensus": asking},
        figures={"samples": 3},
    )


def machine_of(known: Experiment) -> dict[str, Any]:
    return {**known.machine(), "threads": 1}


@pytest.fixture(scope="module")
def resources(tmp_path_factory) -> Path:
    """A folder with the images and networks of the tiny experiment."""
    folder, known = tmp_path_factory.mktemp("jobs"), experiment("cpu")
    for name in ("weights", "config"):
        (folder / name).symlink_to(PROJECT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        places = {name: Path(known.folder(name)) for name in ("images", "diffusion", "classifier")}
        places["noised"] = Path(known.reader_folder("noised", SIGMA))
        for place in places.values():
            place.mkdir(parents=True)
        made = Files(pixels=places["images"] / "images.npy", table=places["images"] / "images.csv")
        decode_images.main(known.recipe("images"), known.config["dataset"]["list"], None, None, made)
        obtain_diffusion.main(known.recipe("diffusion"), places["diffusion"] / WEIGHTS)
        small.obtain(known.recipe("classifier"), places["classifier"])
        small.obtain(known.reader("noised", SIGMA), places["noised"])
    return folder


@pytest.fixture
def at_work(resources, own_slots, monkeypatch) -> None:  # noqa: ARG001
    """Work among the resources, where one GPU is to be seen."""
    monkeypatch.chdir(resources)


def files_of(known: Experiment, **others: Any) -> Files:
    folder = known.folder("images")
    return Files(images=f"{folder}/images.csv", pixels=f"{folder}/images.npy", **others)


def certified(known: Experiment, setting: Setting, output: Path, leader: Path | None = None) -> pd.DataFrame:
    """What a certification job leaves."""
    inputs = files_of(known, **known.network_files(setting), leader=leader)
    certify.main(known.job(setting, known.shard("00000")), machine_of(known), inputs, str(output))
    return pd.read_parquet(output)


COUNTED = ["number", "counts_selection", "counts_estimation", "n0", "n", "evaluations"]


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("name", ["carlini", "densepure", "adds", "rs_trained", "consensus"])
def test_certify_counts_what_it_counts_on_the_cpu(tmp_path, name, caplog):
    """And in half precision nearly that; those that read what a job on a GPU drew say so."""
    known = experiment("cpu")
    setting = max((one for one in known.settings() if one.method == name), key=lambda one: one.votes)
    expected = certified(known, setting, tmp_path / "cpu")
    caplog.set_level("INFO", "adds.certify")
    caplog.clear()
    with pretend_cuda():
        known = experiment("cuda")
        found = certified(known, setting, tmp_path / "gpu")
        (inside, total, _, padding), *_ = [one.args for one in caplog.records if "was padding" in one.msg]
        assert 0 < inside <= total
        assert 0 < padding < 100
        halved = certified(experiment("cuda", half=True), setting, tmp_path / "half")
    pd.testing.assert_frame_equal(found[COUNTED], expected[COUNTED])
    assert set(found["device_kind"]) == {"cuda"}
    assert set(found["device"]) == {"Pretended GPU"}
    assert set(found["identity"]).isdisjoint(expected["identity"])
    assert halved["n"].tolist() == expected["n"].tolist()
    differing = np.abs(np.stack(halved["counts_estimation"]) - np.stack(expected["counts_estimation"])).sum()
    assert differing <= 0.2 * expected["n"].sum()
    if name == "adds":
        follower = Setting("adds_oneshot", SIGMA, 1)
        read = certified(known, follower, tmp_path / "oneshot", leader=tmp_path / "gpu")
        assert set(read["device_kind"]) == {"cuda"}


Job = Callable[[Experiment, Files, str], object]


def checking(network: str) -> Job:
    def check(known: Experiment, files: Files, output: str) -> bool:
        files = Files(files, weights=files[network])
        return check_models.main(known.check_of(network), known.limit(network), machine_of(known), files, output)

    return check


JOBS: dict[str, Job] = {
    "denoise.npz": lambda known, *rest: denoise.main(
        known.denoising(SIGMA), machine_of(known), rest[0], float(SIGMA), rest[1]
    ),
    "spend_budget.csv": lambda known, *rest: spend_budget.main(known.budget(), machine_of(known), *rest),
    "follow_trajectory.npz": lambda known, *rest: follow_trajectory.main(known.trajectory(), machine_of(known), *rest),
    "detail.parquet": lambda known, *rest: detail.main(known.detail(), machine_of(known), *rest),
    "draw_samples.npy": lambda known, files, output: draw_samples.main(
        known.drawing_samples(), machine_of(known), files.diffusion, output
    ),
    "check_diffusion.json": checking("diffusion"),
    "check_classifier.json": checking("classifier"),
}


def read(path: Path) -> dict[str, Any]:
    """What a job left, as columns."""
    if path.suffix == ".npz":
        return dict(np.load(path))
    if path.suffix == ".npy":
        return {"values": np.load(path)}
    if path.suffix == ".json":
        return dict(pd.DataFrame(json.loads(path.read_text())["found"]))
    return dict(pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path))


@PRECISIONS
@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("job", JOBS)
def test_scripts_leave_what_they_leave_on_the_cpu(tmp_path, monkeypatch, job, half):
    monkeypatch.setattr(check_models, "DENOISED", 5)
    left = []
    for device in ("cpu", "cuda"):
        known, output = experiment(device, half=half), tmp_path / f"{device}-{job}"
        files = {name: f"{known.folder(name)}/weights" for name in ("diffusion", "classifier")}
        with pretend_cuda() as counts:
            JOBS[job](known, files_of(known, **files, compiled=None), str(output))
        assert bool(counts.kernels) == (device == "cuda")
        left.append(read(output))
    expected, found = left
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if not np.issubdtype(np.asarray(values).dtype, np.number):
            assert half or np.array_equal(found[name], values)
        else:
            np.testing.assert_allclose(found[name], values, rtol=0, atol=0.1 if half else 1e-4, err_msg=name)


@pytest.mark.usefixtures("at_work")
def test_the_audit_passes(monkeypatch, capsys):
    monkeypatch.setattr(audit, "TRAJECTORIES", 40)
    with pretend_cuda():
        known = experiment("cuda")
        files = {name: f"{known.folder(name)}/weights" for name in ("diffusion", "classifier")}
        assert audit.main(known.audit(), machine_of(known), files_of(known, **files)), capsys.readouterr().out


# Slips that CPUs let pass


def plant(monkeypatch, function: Callable[..., Any], old: str, new: str) -> None:
    """Replace a part of a function's text, for all who call it."""
    text = inspect.getsource(function)
    assert text.count(old) == 1, f"{old!r} is no longer in the code: mend this test"
    names = dict(function.__globals__)
    exec(compile(textwrap.dedent(text.replace(old, new)), "slip", "exec"), names)
    monkeypatch.setattr(function, "__code__", names[function.__name__].__code__)


SLIPS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "states go to the CPU": (guidance.walk, "x_t[staying], active", "x_t[staying].cpu(), active"),
    "the budget is on the CPU": (guidance.walk, "tuple(start.shape), device=start.device", "tuple(start.shape)"),
    "steps are on the CPU": (guidance.walk, "dtype=torch.long, device=start.device", "dtype=torch.long"),
    "timesteps of the record are on the CPU": (guidance.Guided.record_in, ", device=self.steps.device", ""),
    "the image stays on the CPU": (adds.guide, "subject.image.to(denoiser.device)", "subject.image"),
    "the network's timesteps are on the CPU": (Denoiser.predict, ", device=batch.device", ""),
    "the noise's votes are on the CPU": (
        Noise.normal,
        "torch.full_like(samples, votes)",
        "torch.full_like(samples, votes).cpu()",
    ),
    "noise comes from the CPU": (Noise.normal, "view(-1, *shape)", "view(-1, *shape).cpu()"),
    "ballots don't leave the GPU": (base.poll, ".cpu().numpy()", ".numpy()"),
    "predictions don't leave the GPU": (sampler._integers, ".cpu().numpy()", ".numpy()"),
    "ballots are on the CPU": (base.poll, "UNCAST, device=device", "UNCAST"),
    "votes are on the CPU": (Continuations.run, "torch.tensor(votes, device=owner.device)", "torch.tensor(votes)"),
    "half precision isn't told to the network": (diffusion.ready, "halve(network)", "network.convert_to_fp16()"),
    "attention in two dtypes": (FusedAttention.forward, "attention(q, k, v)", "attention(q.float(), k, v)"),
}
OF_OTHERS: dict[str, tuple[str, Callable[..., Any], str, str]] = {
    "a release's image stays on the CPU": ("rs", release.release, "subject.image.to(device)", "subject.image"),
    "the bridges' votes are on the CPU": ("adds_bridge", adds_bridge.bridges, "votes, device=owner.device", "votes"),
    "the readers' weights are on the CPU": (
        "consensus",
        consensus.posterior,
        "weights.to(parts[0])",
        "weights.float()",
    ),
}
ALL_SLIPS = {**{what: ("adds", *slip) for what, slip in SLIPS.items()}, **OF_OTHERS}


@pytest.mark.parametrize("what", ALL_SLIPS)
def test_a_slip_is_seen_that_the_cpu_doesn_t_see(schedule, weights, image, monkeypatch, what):
    name, *slip = ALL_SLIPS[what]
    expected = drawn(name, pipeline_on(CPU, weights, schedule, half=True), image, 2)
    plant(monkeypatch, *slip)
    assert_same(drawn(name, pipeline_on(CPU, weights, schedule, half=True), image, 2), expected)
    with pretend_cuda(), pytest.raises((RuntimeError, TypeError), match=r"device|type|indices"):
        drawn(name, pipeline_on(GPU, weights, schedule, half=True), image, 2)


def test_what_slips_are_put_into_passes_without_them(schedule, weights, image, monkeypatch):
    expected = drawn("adds", pipeline_on(CPU, weights, schedule), image, 2)
    for function, old in {function: old for function, old, _ in SLIPS.values()}.items():
        plant(monkeypatch, function, old, old)
    with pretend_cuda():
        assert_same(drawn("adds", pipeline_on(GPU, weights, schedule), image, 2), expected)


def test_guided_steps_wait_for_the_gpu_once_for_those_that_leave(schedule, weights, image, gpu):
    """Trajectories leave by their positions: every mask would be a wait of its own."""
    pipeline = pipeline_on(GPU, weights, schedule)
    gpu.clear()
    drawn("adds", pipeline, image, 1)
    at = {line: waits for (reason, line), waits in gpu.waits.items() if line.startswith("guidance.py")}
    assert max(at.values()) <= len(pipeline.grid)
    assert not any("mask" in reason for reason, line in gpu.waits if line.startswith(("guidance.py", "privacy.py")))


def test_what_compiled_code_is_compared_on_is_on_the_gpu():
    with pretend_cuda():
        network = random_unet().to("cuda")
        network.failure = ""
        what = diffusion.compilable({"unet": TINY_UNET, "half_precision": False}, torch.device("cuda"), 4)
        assert compiled.check_values(network, network, what) == 0
