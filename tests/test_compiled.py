"""The compiled network computes the same; where it can't be made or isn't for this machine, jobs go on without."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
import yaml

from adds import compilation
from adds.models.compiled import CompiledNetwork, load_package, make_package
from adds.models.fast_unet import FusedAttention, UpsampledConvolution
from adds.models.unet import untrained_unet
from tests.conftest import TINY_UNET
from tests.workflow import PROJECT

CPU = torch.device("cpu")
SIZE = 32
WHAT = {"facts": {"unet": "some", "precision": "float32"}, "shape": (1, SIZE, SIZE), "device": CPU}


def network_with_everything(head_channels=8):
    """Return a network with fused attention and a folded convolution."""
    network = untrained_unet(
        {
            **TINY_UNET,
            "image_size": SIZE,
            "attention_resolutions": [16],
            "num_head_channels": head_channels,
        }
    )
    assert any(isinstance(module, FusedAttention) for module in network.modules())
    assert any(isinstance(module, UpsampledConvolution) for module in network.modules())
    return network


def make(folder):
    package = folder / "compiled.pt2"
    make_package(network_with_everything(), package, folder / "compiled.json", **WHAT)
    return package


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return make(tmp_path_factory.mktemp("compiled"))


def test_the_same_values_whatever_else_is_in_the_batch(package):
    """The weights are other ones than those that it was compiled with."""
    network = network_with_everything()
    torch.manual_seed(1)
    for parameter in network.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape)
    compiled = load_package(network, package, **WHAT)
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


@pytest.mark.parametrize("fact", ["unet", "precision", "torch", "system", "processor"])
def test_what_was_compiled_for_something_else_is_not_used(package, fact, tmp_path, caplog):
    copy = tmp_path / "compiled.pt2"
    copy.write_bytes(package.read_bytes())
    described = json.loads(package.with_suffix(".json").read_text())
    copy.with_suffix(".json").write_text(json.dumps({**described, fact: "other"}))
    network = network_with_everything()
    assert load_package(network, copy, **WHAT) is network
    assert f"compiled for another {fact}" in caplog.text


def test_a_broken_package_is_not_used(package, tmp_path, caplog):
    copy = tmp_path / "compiled.pt2"
    copy.write_bytes(package.read_bytes()[:1000])
    copy.with_suffix(".json").write_text(package.with_suffix(".json").read_text())
    network = network_with_everything()
    assert load_package(network, copy, **WHAT) is network
    assert "delete" in caplog.text


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


def test_what_fails_on_a_gpu_is_tried_again_in_smaller_batches():
    """Compiled code doesn't tell running out of memory from other failures."""

    class Full:
        def boxed_run(self, _):
            raise RuntimeError("API call failed")

    class OnGpu(torch.Tensor):
        is_cuda = True

    compiled = CompiledNetwork.__new__(CompiledNetwork)
    compiled._loader = Full()
    states = torch.zeros(4, 1, 8, 8)
    with pytest.raises(torch.OutOfMemoryError, match="lack of memory"):
        compiled(states.as_subclass(OnGpu), torch.zeros(4))
    with pytest.raises(RuntimeError, match="API call failed"):
        compiled(states, torch.zeros(4))


def test_a_network_that_was_compiled_wrongly_is_thrown_away(package, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compilation, "compile_network", lambda _, path, **__: shutil.copy(package, path))
    monkeypatch.setitem(compilation.MOST_DIFFERENCE, "cpu", 0.0)
    thrown_away = make(tmp_path)
    assert thrown_away.read_bytes() == b""
    network = network_with_everything()
    assert load_package(network, thrown_away, **WHAT) is network
    assert "from the original's, more than 0.0" in caplog.text


def test_a_compiled_network_with_other_values_is_not_used(package, caplog):
    """Nothing but its values tells that attention was compiled with other heads."""
    network = network_with_everything(head_channels=16)
    assert load_package(network, package, **WHAT) is network
    assert "from the original's" in caplog.text


def test_a_compiled_network_with_other_weights_is_not_used(package, caplog):
    network = untrained_unet(TINY_UNET)
    assert load_package(network, package, **WHAT) is network
    assert "a network with other weights" in caplog.text


WITHOUT_COMPILER = """
import sys
from pathlib import Path
from adds.models.compiled import load_package
from tests.test_compilation import WHAT, make, network_with_everything
network = network_with_everything()
assert load_package(network, make(Path(sys.argv[1])), **WHAT) is network
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
