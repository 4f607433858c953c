"""The fast path computes what guided_diffusion's own code does."""

import pytest
import torch
from guided_diffusion.nn import GroupNorm32, timestep_embedding
from guided_diffusion.unet import QKVAttentionLegacy, UNetModel
from torch import nn
from torch.nn.functional import interpolate

from adds.models.fast_unet import TIMESTEPS, FusedAttention, UpsampledConvolution, accelerate, embed, halve
from tests.conftest import TINY_UNET, random_unet

ATTENTIVE = {**TINY_UNET, "attention_resolutions": [8, 4], "num_head_channels": 8, "num_res_blocks": 1}
LARGE = {**TINY_UNET, "image_size": 64, "channel_mult": [1, 1, 2, 2]}  # upsampled from 8, 16 and 32 pixels


@pytest.mark.parametrize("width", [8, 9, 128])
def test_timesteps_are_embedded_as_ever(width):
    timesteps = torch.tensor([0.0, 3.5, 999.0])
    torch.testing.assert_close(embed(timesteps, width), timestep_embedding(timesteps, width), rtol=0, atol=0)


def test_the_network_is_guided_diffusions():
    network, x_t, timesteps = random_unet(ATTENTIVE), torch.randn(2, 1, 8, 8), torch.tensor([5.0, 900.0])
    torch.testing.assert_close(network(x_t, timesteps), UNetModel.forward(network, x_t, timesteps), rtol=0, atol=0)


BLOCKS = {**ATTENTIVE, "image_size": 16, "in_channels": 3, "space_to_channels": 2}
"""As large inside as a network for 12 channels of 8 x 8."""


def by_blocks(images):
    """Make channels of the pixels of each 2 x 2 block, one channel after the other."""
    corners = [images[:, :, row::2, column::2] for row in (0, 1) for column in (0, 1)]
    return torch.stack(corners, dim=2).flatten(1, 2)


def test_space_to_channels_only_puts_coordinates_in_another_order():
    inside = random_unet({**ATTENTIVE, "in_channels": 12})
    outside = random_unet(BLOCKS)
    outside.load_state_dict(inside.state_dict())
    x_t, timesteps = torch.randn(2, 3, 16, 16), torch.tensor([5.0, 900.0])
    found = outside(x_t, timesteps)
    assert found.shape == (2, 6, 16, 16)
    torch.testing.assert_close(by_blocks(found), inside(by_blocks(x_t), timesteps), rtol=0, atol=0)


def test_a_network_of_v_returns_the_noise():
    """x0 by the noise that it returns is x0 by v, sqrt(abar) x_t - sqrt(1 - abar) v; the variance is the network's."""
    plain, network = random_unet(ATTENTIVE), random_unet({**ATTENTIVE, "predicts_v": True})
    network.load_state_dict({**plain.state_dict(), "alphas_bar": torch.linspace(0.99, 0.01, TIMESTEPS)})
    x_t, timesteps = torch.randn(3, 1, 8, 8), torch.tensor([0.0, 300.0, 999.0])
    (v, variance), (noise, kept) = (found(x_t, timesteps).chunk(2, dim=1) for found in (plain, network))
    abar = network.alphas_bar[timesteps.long()].view(-1, 1, 1, 1)
    x0 = (x_t - (1 - abar).sqrt() * noise) / abar.sqrt()
    torch.testing.assert_close(x0, abar.sqrt() * x_t - (1 - abar).sqrt() * v)
    assert torch.equal(kept, variance)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_fused_attention_keeps_the_legacy_order_of_heads(heads):
    qkv = torch.randn(3, heads * 3 * 16, 50)
    plain, fused = QKVAttentionLegacy(heads)(qkv), FusedAttention(heads)(qkv)
    assert fused.shape == plain.shape
    assert float((fused - plain).abs().max()) < 1e-5


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 5), (16, 16)])
def test_an_upsampled_convolution_is_upsampling_and_then_a_convolution(height, width):
    convolution = nn.Conv2d(6, 5, 3, padding=1).requires_grad_(False)
    small = torch.randn(3, 6, height, width)
    expected = convolution(interpolate(small, scale_factor=2, mode="nearest"))
    found = UpsampledConvolution(convolution)(small)
    assert found.shape == expected.shape
    assert float((found - expected).detach().abs().max()) < 1e-5


@pytest.mark.parametrize(
    ("settings", "folded"),
    [
        (ATTENTIVE, 0),
        ({**ATTENTIVE, "num_head_channels": -1, "num_heads": 4}, 0),
        (LARGE, 2),
        ({**LARGE, "resblock_updown": True}, 2),
        ({**LARGE, "space_to_channels": 2, "predicts_v": True}, 1),
    ],
    ids=["head channels", "number of heads", "upsampling layers", "upsampling blocks", "blocks and v"],
)
def test_an_accelerated_network_gives_the_same(settings, folded):
    network = random_unet(settings)
    x_t, timesteps = torch.randn(2, 1, settings["image_size"], settings["image_size"]), torch.full((2,), 500)
    plain = network(x_t, timesteps)
    accelerate(network)
    assert not any(isinstance(module, QKVAttentionLegacy) for module in network.modules())
    assert sum(isinstance(module, UpsampledConvolution) for module in network.modules()) == folded
    assert float((network(x_t, timesteps) - plain).abs().max() / plain.abs().max()) < 1e-5


def test_in_half_precision_only_the_ends_are_single():
    network = random_unet(ATTENTIVE)
    halve(network)
    single = {name for name, weight in network.named_parameters() if weight.dtype == torch.float32}
    ends = ("time_embed.", "out.")
    linear = {name for name in single if "emb_layers" in name}  # guided_diffusion's choice: they see the timestep
    assert {name for name in single - linear if not name.startswith(ends)} == set()
    assert [module for module in network.modules() if isinstance(module, GroupNorm32)] == [network.out[0]]


def test_half_precision_reaches_the_folded_convolutions():
    """guided_diffusion's own conversion has to find them."""
    network = random_unet(LARGE)
    accelerate(network)
    halve(network)
    folded = [module.folded for module in network.modules() if isinstance(module, UpsampledConvolution)]
    assert {convolution.weight.dtype for convolution in folded} == {torch.float16}
