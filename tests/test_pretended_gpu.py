"""What jobs do on a GPU, on a pretended one (`tests.pretend_cuda`): devices and dtypes fit, ballots are the CPU's."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adds.data.images import Picture
from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.models.pipeline import Pipeline
from adds.models.unet import load_diffusion
from adds.models.weights import save_weights
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
    with torch.inference_mode(inference), pytest.raises(RuntimeError):
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
