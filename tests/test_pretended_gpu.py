"""What jobs do on a GPU, on a pretended one (`tests.pretend_cuda`): devices and dtypes fit, ballots are the CPU's."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.models.classifiers import kernel, python, small, timm
from adds.models.pipeline import BatchedClassifier, Pipeline, classifier_kind
from adds.models.unet import load_diffusion, randomize
from adds.models.weights import WEIGHTS, describe_model, save_weights
from adds.registry import METHODS
from adds.sampling.counting import Request
from adds.sampling.ledger import Chunk
from adds.sampling.sampler import Sampler
from tests.conftest import TINY_UNET, random_unet, unet_pipeline
from tests.pretend_cuda import Counts, on_gpu, pretend_cuda
from tests.soundness.golden import READ

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
    pipeline = unet_pipeline(schedule, network, batch_size=8)
    pipeline.denoiser.device = device
    for classifier in (pipeline.classifier, *pipeline.readers.values()):
        classifier.classifier.to(device)
    return replace(pipeline, grid=schedule.respaced(evenly_spaced(8, 1000)))


def drawn(name: str, pipeline: Pipeline, image: Tensor, images: int, **options: str) -> list[Chunk]:
    """Some samples of some images, side by side, in both stages; five votes where there are votes."""
    votes = 5 if METHODS[name].takes_votes else 1
    sampler = Sampler(name, pipeline, sigma=0.6, votes=votes, options=options, readers=READ)
    pictures = [Picture.of(image if number % 2 else 1 - image, number) for number in range(1, images + 1)]
    stages = ("estimation", "selection")
    return sampler.draw([Request(picture, stages[picture.number % 2], 3, 4) for picture in pictures])


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


# Networks


@PRECISIONS
def test_every_part_of_the_unet_runs(tmp_path, half):
    """Attention, upsampling folded into convolutions, and both up- and downsampling inside of residual blocks."""
    changes = {"image_size": 32, "num_channels": 32, "attention_resolutions": [16], "resblock_updown": True}
    settings = {"unet": {**TINY_UNET, **changes}, "half_precision": half}
    save_weights(random_unet(settings["unet"]), tmp_path / WEIGHTS)
    states, timesteps = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(0)), torch.tensor([10.0, 900])
    with torch.inference_mode():
        expected = load_diffusion(tmp_path / WEIGHTS, settings, CPU)(states, timesteps)
        with pretend_cuda() as counts:
            network = load_diffusion(tmp_path / WEIGHTS, settings, GPU)
            found = network(states.to(GPU), timesteps.to(GPU)).cpu()
    assert {"convolution", "scaled_dot_product_attention"} <= counts.kernels.keys()
    assert any(name.endswith("folded.weight") for name, _ in network.named_parameters())
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02 if half else 1e-5)


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


@pytest.mark.usefixtures("gpu")
def test_a_gpu_without_room_for_one_image_is_an_error(schedule, weights, image):
    with pytest.raises(torch.OutOfMemoryError):
        drawn("carlini", hungry(pipeline_on(GPU, weights, schedule), 0), image, 1)
