"""The compiled network computes the same; where it can't be made or isn't for this machine, jobs go on without."""

import json
import subprocess
import sys

import pytest
import torch

from adds import compilation
from adds.compilation import CompiledNetwork, load_package, make_package
from adds.fastpath import UpsampledConvolution, accelerate
from tests.conftest import TINY_UNET, random_unet
from tests.test_fastpath import with_random_weights

CPU = torch.device("cpu")
FACTS = {"weights": "some", "precision": "torch.float32"}
SIZE = 32


def network_with_everything():
    """Return a network with fused attention and a folded convolution."""
    settings = {**TINY_UNET, "image_size": SIZE, "attention_resolutions": [16], "num_head_channels": 8}
    network = with_random_weights(settings)
    accelerate(network)
    assert any(isinstance(module, UpsampledConvolution) for module in network.modules())
    return network.requires_grad_(False)


def make(folder):
    package, description = folder / "compiled.pt2", folder / "compiled.json"
    network, shape = network_with_everything(), (1, SIZE, SIZE)
    make_package(network, package, description, facts=FACTS, shape=shape, device=CPU)
    return package


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return make(tmp_path_factory.mktemp("compiled"))


def test_the_same_values_whatever_else_is_in_the_batch(package):
    network = network_with_everything()
    compiled = load_package(network, package, facts=FACTS, device=CPU)
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


@pytest.mark.parametrize("fact", ["weights", "precision", "torch", "system", "processor"])
def test_what_was_compiled_for_something_else_is_not_used(package, fact, tmp_path, caplog):
    copy = tmp_path / "compiled.pt2"
    copy.write_bytes(package.read_bytes())
    described = json.loads(package.with_suffix(".json").read_text())
    copy.with_suffix(".json").write_text(json.dumps({**described, fact: "other"}))
    network = random_unet()
    assert load_package(network, copy, facts=FACTS, device=CPU) is network
    assert f"compiled for another {fact}" in caplog.text


def test_a_broken_package_is_not_used(package, tmp_path, caplog):
    copy = tmp_path / "compiled.pt2"
    copy.write_bytes(package.read_bytes()[:1000])
    copy.with_suffix(".json").write_text(package.with_suffix(".json").read_text())
    network = random_unet()
    assert load_package(network, copy, facts=FACTS, device=CPU) is network
    assert "delete" in caplog.text


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


def test_a_network_that_was_compiled_wrongly_is_thrown_away(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compilation, "compile_network", lambda *_, **__: 0.5)
    package = make(tmp_path)
    assert package.read_bytes() == b""
    network = random_unet()
    assert load_package(network, package, facts=FACTS, device=CPU) is network
    assert "differ by 5.0e-01 from the original's" in caplog.text


WITHOUT_COMPILER = """
import sys
from pathlib import Path
from tests.test_compilation import CPU, FACTS, make
from adds.compilation import load_package
from tests.conftest import random_unet
network = random_unet()
assert load_package(network, make(Path(sys.argv[1])), facts=FACTS, device=CPU) is network
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
