"""The compiled network computes the same; where it can't be made or isn't for this machine, jobs go on without."""

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import evenly_spaced
from adds.machine import locks
from adds.models import compiled as compilation
from adds.models.compiled import CompiledNetwork, check_values, compiled_or_plain, load_compiled, package_for
from adds.models.fast_unet import FusedAttention, UpsampledConvolution
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.models.unet import compilable, untrained_unet
from adds.sampling.counting import Request
from adds.sampling.sampler import Sampler
from tests.conftest import TINY_UNET
from tests.own_data import CONFIG, UNET
from tests.workflow import PROJECT

pytestmark = pytest.mark.workflow  # its package is one that the workflow has compiled

CPU = torch.device("cpu")
SIZE, BATCH_SIZE = UNET["image_size"], CONFIG["diffusion"]["batch_size"]
WHAT = compilable({"unet": UNET, "half_precision": False}, CPU, BATCH_SIZE)


def network_with_everything(**changes):
    """Return a network with fused attention and a folded convolution."""
    network = untrained_unet({**UNET, **changes})
    assert any(isinstance(module, FusedAttention) for module in network.modules())
    assert any(isinstance(module, UpsampledConvolution) for module in network.modules())
    return network


@pytest.fixture
def folder(own_data, tmp_path):
    """A copy of what the workflow has compiled: compiling takes half a minute."""
    return shutil.copytree(next(own_data.glob("resources/files/compiled-*")), tmp_path / "compiled")


@pytest.fixture
def package(folder):
    return next(folder.glob("*/compiled.pt2"))


def test_the_same_values_whatever_else_is_in_the_batch(folder):
    """The weights are other ones than those that it was compiled with."""
    network = network_with_everything()
    torch.manual_seed(1)
    for parameter in network.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape)
    compiled = compiled_or_plain(network, folder, WHAT)
    assert isinstance(compiled, CompiledNetwork)
    x_t, timesteps = torch.randn(8, 1, SIZE, SIZE), torch.full((8,), 500.0)
    with torch.inference_mode():
        whole = compiled(x_t, timesteps)
        for rows in (1, 3, 8):
            expected = network(x_t[:rows], timesteps[:rows])
            difference = (compiled(x_t[:rows], timesteps[:rows]) - expected).abs().max()
            assert float(difference / expected.abs().max()) < 1e-5
        mixed = torch.cat([x_t[:3], torch.randn(5, 1, SIZE, SIZE)])
        assert torch.equal(compiled(mixed, timesteps)[:3], whole[:3])


def test_a_network_of_blocks_and_v_is_compiled_too(tmp_path):
    """It has weights of its own, the schedule, which jobs put in with the others."""
    unet = {**TINY_UNET, "space_to_channels": 2, "predicts_v": True}
    what = compilable({"unet": unet, "half_precision": False}, CPU, 4)
    package_for(untrained_unet(unet), tmp_path, what)
    network = untrained_unet(unet)
    network.alphas_bar.copy_(torch.linspace(0.99, 0.01, 1000))
    compiled = compiled_or_plain(network, tmp_path, what)
    assert isinstance(compiled, CompiledNetwork)
    x_t, timesteps = torch.randn(4, 1, 8, 8), torch.tensor([0.0, 10.0, 500.0, 999.0])
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x_t, timesteps), network(x_t, timesteps))


@pytest.mark.parametrize("fact", ["unet", "precision", "most", "torch", "system", "processor"])
def test_every_network_and_processor_has_a_package_of_its_own(folder, fact, monkeypatch):
    """On another processor, with another torch or for another network it is compiled anew, beside what is there."""
    there = set(folder.glob("*/compiled.pt2"))
    asked = []
    monkeypatch.setattr(compilation, "_try_to_compile", lambda _, package, __: asked.append(package) or "no")
    what = replace(WHAT, facts={**WHAT.facts, fact: "other"}) if fact in WHAT.facts else WHAT
    what = replace(WHAT, most=2 * BATCH_SIZE) if fact == "most" else what
    here = compilation.target(CPU)
    monkeypatch.setattr(compilation, "target", lambda _: {**here, fact: "other"} if fact in here else here)
    network = network_with_everything()
    assert compiled_or_plain(network, folder, what) is network
    assert len(asked) == 1
    assert asked[0] not in there
    assert compiled_or_plain(network, folder, what) is network
    assert len(asked) == 1, "what failed isn't tried again by every job"
    with pytest.raises(RuntimeError):
        load_compiled(network, folder, what, again=True)
    assert len(asked) == 2, "but where that is asked for"


@pytest.mark.parametrize(("most", "largest"), [(64, 64), (1, 2 * compilation._EXAMPLES)])
def test_no_larger_batches_are_compiled_for(tmp_path, monkeypatch, most, largest):
    """They would make the compiler count with 64 bits. The examples it sees have to fit, too."""
    seen = {}
    monkeypatch.setattr(compilation.torch.export, "export", lambda *_, **told: seen.update(told))
    monkeypatch.setattr(compilation.torch._inductor, "aoti_compile_and_package", lambda *_, **__: None)
    compilation.compile_network(network_with_everything(), tmp_path, replace(WHAT, most=most))
    assert [(size[0].min, size[0].max) for size in seen["dynamic_shapes"]] == 2 * [(2, largest)]


def test_compiled_code_does_not_wait_for_the_evaluation_before(monkeypatch):
    """As the loader's third argument says: it runs in one thread."""
    seen = []

    def loader(*arguments):
        seen.append(arguments)
        return SimpleNamespace(get_constant_fqns=list, load_constants=lambda *_, **__: None)

    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", loader)
    CompiledNetwork(network_with_everything(), "package")
    assert seen == [("package", "model", True, 1, -1)]


def test_a_broken_package_is_not_used(folder, package, caplog):
    package.write_bytes(package.read_bytes()[:1000])
    network = network_with_everything()
    assert compiled_or_plain(network, folder, WHAT) is network
    assert f"delete {package.parent}" in caplog.text


def test_two_jobs_compile_once(folder, package, monkeypatch):
    """The second one waits for the first one's lock, and finds its package."""
    made, description, waits = [], package.with_suffix(".json"), threading.Event()
    kept = package.read_bytes()
    description.unlink()

    def slowly(_network, path, _what):
        made.append(path)
        assert waits.wait(60), "nobody waited"
        path.write_bytes(kept)

    monkeypatch.setattr(compilation, "_try_to_compile", slowly)
    monkeypatch.setattr(locks.logger, "info", lambda *_: waits.set())
    jobs = [threading.Thread(target=package_for, args=(None, folder, WHAT)) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert made == [package]


def test_random_weights_stay_in_the_range_of_half_precision():
    """Else nothing could be compiled for GPUs: values are compared before any real weights are there."""
    config = yaml.safe_load((PROJECT / "config/cifar10.yaml").read_text())
    base = yaml.safe_load((PROJECT / "config/config.yaml").read_text())
    unet = {**base["diffusion"]["unet"], **config["diffusion"]["unet"]}
    network = untrained_unet(unet)
    largest = []
    for module in network.modules():
        module.register_forward_hook(lambda _module, _inputs, output: largest.append(float(output.abs().max())))
    values = network(torch.randn(2, 3, unet["image_size"], unet["image_size"]), torch.tensor([0.0, 999.0]))
    assert float(values.std()) > 0.01
    assert max(largest) < torch.finfo(torch.float16).max / 100


class OnGpu(torch.Tensor):
    is_cuda = True


class Failing:
    """Compiled code, which doesn't tell running out of memory from other failures."""

    asked = 0

    def boxed_run(self, _):
        self.asked += 1
        raise RuntimeError("API call failed")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("a bug"), None])
def test_what_failed_on_a_gpu_the_network_itself_says(caplog, error):
    def network(states, _):
        if error:
            raise error
        return 2 * states

    compiled = CompiledNetwork.__new__(CompiledNetwork)
    compiled._loader, compiled._network, compiled.failure = Failing(), network, ""
    states = torch.ones(4, 1, 8, 8)
    with pytest.raises(RuntimeError, match="API call failed"):
        compiled(states, torch.zeros(4))
    for _ in range(3):
        if error:
            with pytest.raises(type(error), match=str(error)):
                compiled(states.as_subclass(OnGpu), torch.zeros(4))
        else:
            assert torch.equal(compiled(states.as_subclass(OnGpu), torch.zeros(4)), 2 * states)
    told = [record.getMessage() for record in caplog.records]
    if error:
        assert not told, "a smaller batch may be within its reach"
    else:
        assert told == ["the compiled network failed, and the job goes on uncompiled: API call failed"]
    assert compiled._loader.asked == (4 if error else 2)


def test_compiled_code_that_fails_on_a_gpu_is_not_taken_for_working(monkeypatch):
    """The network itself answers for it, so that its values say nothing."""

    def network(states, _):
        return 2 * states

    compiled = CompiledNetwork.__new__(CompiledNetwork)
    compiled._loader, compiled._network, compiled.failure = Failing(), network, ""
    states = torch.ones(4, 1, 8, 8).as_subclass(OnGpu)
    monkeypatch.setattr(compilation, "_examples", lambda _: (states, torch.zeros(4)))
    with pytest.raises(RuntimeError, match="API call failed"):
        check_values(compiled, network, WHAT)


def test_a_network_that_was_compiled_wrongly_is_thrown_away(package, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compilation, "compile_network", lambda _, path, __: shutil.copy(package, path))
    monkeypatch.setitem(compilation.MOST_DIFFERENCE, "cpu", 0.0)
    network = network_with_everything()
    assert compiled_or_plain(network, tmp_path / "other", WHAT) is network
    assert next(tmp_path.glob("other/*/compiled.pt2")).read_bytes() == b""
    assert "from the original's, more than 0.0" in caplog.text


def test_a_compiled_network_with_other_values_is_not_used(folder, caplog):
    """Nothing but its values tells that attention was compiled with other heads."""
    network = network_with_everything(num_head_channels=16)
    assert compiled_or_plain(network, folder, WHAT) is network
    assert "from the original's" in caplog.text


def test_a_compiled_network_with_other_weights_is_not_used(folder, caplog):
    network = untrained_unet({**UNET, "attention_resolutions": []})
    assert compiled_or_plain(network, folder, WHAT) is network
    assert "a network with other weights" in caplog.text


def test_compiled_and_plain_networks_cast_the_same_ballots(schedule, folder):
    """They differ by rounding, which is why compiling is no part of a sample's identity."""
    network = network_with_everything()
    picture = Picture.of(np.random.default_rng(0).uniform(size=(1, SIZE, SIZE)))
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 10)).requires_grad_(False)

    def ballots(network):
        grid = schedule.respaced(evenly_spaced(20, 1000))
        denoiser = Denoiser(network, schedule, batch_size=BATCH_SIZE)
        pipeline = Pipeline(denoiser, BatchedClassifier(classifier, classes=10, batch_size=BATCH_SIZE), grid)
        return Sampler("adds", pipeline, 0.6).draw([Request(picture, "estimation", 0, 100)])[0].ballots

    compiled = compiled_or_plain(network, folder, WHAT)
    assert isinstance(compiled, CompiledNetwork)
    plain = ballots(network)
    assert len(np.unique(plain)) > 2
    assert (ballots(compiled) == plain).mean() >= 0.98


WITHOUT_COMPILER = """
import sys
from pathlib import Path
from adds.models.compiled import compiled_or_plain
from tests.test_compiled import WHAT, network_with_everything
network = network_with_everything()
assert compiled_or_plain(network, Path(sys.argv[1]) / "compiled", WHAT) is network
"""


def test_without_a_compiler_jobs_go_on(tmp_path):
    environment = {
        "CXX": "/nowhere/g++",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER, tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "can't be compiled here" in done.stderr
