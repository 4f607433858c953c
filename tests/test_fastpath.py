"""The fast path computes what guided_diffusion's own code does, with and without a compiler."""

import subprocess
import sys

import pytest
import torch
from guided_diffusion.unet import QKVAttentionLegacy

from adds.denoiser import build_unet
from adds.fastpath import Compiled, FusedAttention, fuse_attention
from tests.conftest import TINY_UNET, random_unet

ATTENTIVE = {**TINY_UNET, "attention_resolutions": [8, 4], "num_head_channels": 8, "num_res_blocks": 1}


def with_random_weights(settings):
    torch.manual_seed(0)
    network = build_unet(settings)
    for parameter in network.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape)
    return network.eval().requires_grad_(False)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_fused_attention_keeps_the_legacy_order_of_heads(heads):
    qkv = torch.randn(3, heads * 3 * 16, 50)
    plain, fused = QKVAttentionLegacy(heads)(qkv), FusedAttention(heads)(qkv)
    assert fused.shape == plain.shape
    assert float((fused - plain).abs().max()) < 1e-5


@pytest.mark.parametrize("heads", [{}, {"num_head_channels": -1, "num_heads": 4}], ids=["channels", "number"])
def test_a_network_with_fused_attention_gives_the_same(heads):
    network = with_random_weights({**ATTENTIVE, **heads})
    x_t, timesteps = torch.randn(4, 1, 8, 8), torch.full((4,), 500)
    plain = network(x_t, timesteps)
    names = list(network.state_dict())
    fuse_attention(network)
    assert list(network.state_dict()) == names
    assert not any(isinstance(module, QKVAttentionLegacy) for module in network.modules())
    assert float((network(x_t, timesteps) - plain).abs().max()) < 1e-5


def test_a_compiled_network_gives_the_same_whatever_else_is_in_the_batch():
    network = random_unet()
    compiled = Compiled(network)
    x_t, timesteps = torch.randn(8, 1, 8, 8), torch.full((8,), 500.0)
    with torch.inference_mode():
        first = compiled(x_t, timesteps)
        assert float((first - network(x_t, timesteps)).abs().max()) < 1e-5
        mixed = torch.cat([x_t[:3], torch.randn(5, 1, 8, 8)])
        assert torch.equal(compiled(mixed, timesteps)[:3], first[:3])


WITHOUT_COMPILER = """
import torch
from adds.fastpath import Compiled
from tests.conftest import random_unet
network = random_unet()
x_t, timesteps = torch.randn(4, 1, 8, 8), torch.full((4,), 500.0)
with torch.inference_mode():
    assert torch.equal(Compiled(network)(x_t, timesteps), network(x_t, timesteps))
"""


def test_without_a_compiler_it_runs_as_it_was(tmp_path):
    environment = {
        "CXX": "/nowhere/g++",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "can't be compiled here" in done.stderr


def test_errors_of_the_network_itself_are_not_swallowed():
    network = random_unet()
    with pytest.raises(RuntimeError, match="channels"), torch.inference_mode():
        Compiled(network)(torch.zeros(2, 3, 8, 8), torch.zeros(2))
