"""The same UNet, faster, over guided_diffusion's unmodified weights.

Attention is fused and upsampling cheaper; in half precision, what is between the convolutions stays in it.
"""

import math
from typing import Any

import torch
from guided_diffusion.nn import GroupNorm32
from guided_diffusion.unet import QKVAttentionLegacy, ResBlock, UNetModel, Upsample
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle, pixel_unshuffle, scaled_dot_product_attention

FOLD_FROM = 16
"""The smallest side of a feature map for an `UpsampledConvolution`: below, it was measured not to pay."""

TIMESTEPS = 1000
"""Of the process whose v a UNet predicts."""


def embed(timesteps: Tensor, width: int) -> Tensor:
    """Return cos and sin of t / 10000^(i / half) for i < half = width // 2: float32 [n, width].

    As guided_diffusion's, whose frequencies are made on the CPU: copying them stops a GPU at every evaluation.
    """
    half = width // 2
    numbers = torch.arange(half, dtype=torch.float32, device=timesteps.device)
    angles = timesteps[:, None].float() * torch.exp(-math.log(10000) * numbers / half)[None]
    return torch.nn.functional.pad(torch.cat([angles.cos(), angles.sin()], dim=1), (0, width % 2))


class UNet(UNetModel):  # type: ignore[misc]
    """guided_diffusion's UNet without labels, which keeps to its device.

    With ``space_to_channels`` it sees blocks of so many pixels by so many as channels: the coordinates in another
    order, and nothing else. With ``predicts_v`` its first channels are read as v = sqrt(abar) eps - sqrt(1 - abar) x0,
    and it returns the noise all the same: eps = sqrt(abar) v + sqrt(1 - abar) x_t. ``alphas_bar`` are those of the
    process that it was trained for, and belong to its weights.
    """

    alphas_bar: Tensor

    def __init__(self, *, space_to_channels: int = 1, predicts_v: bool = False, **architecture: Any) -> None:
        super().__init__(**architecture)
        self.block = space_to_channels
        self.predicts_v = predicts_v
        if predicts_v:
            self.register_buffer("alphas_bar", torch.full((TIMESTEPS,), 0.5))

    def forward(self, x_t: Tensor, timesteps: Tensor) -> Tensor:
        """Predict noise and variance: [n, C, H, W] and [n] to [n, 2C, H, W]."""
        embedded = self.time_embed(embed(timesteps, self.model_channels))
        skipped: list[Tensor] = []
        features: Tensor = x_t.to(self.dtype)
        if self.block > 1:
            features = pixel_unshuffle(features, self.block)
        for block in self.input_blocks:
            features = block(features, embedded)
            skipped.append(features)
        features = self.middle_block(features, embedded)
        for block in self.output_blocks:
            features = torch.cat([features, skipped.pop()], dim=1)  # lets go of the one before
            features = block(features, embedded)
        features = features.to(x_t.dtype)
        predicted: Tensor = self.out(features)
        if self.block > 1:
            predicted = pixel_shuffle(predicted, self.block)
        return self._as_noise(predicted, x_t, timesteps) if self.predicts_v else predicted

    def _as_noise(self, predicted: Tensor, x_t: Tensor, timesteps: Tensor) -> Tensor:
        """Turn v into the noise; the variance stays."""
        v, variance = predicted.chunk(2, dim=1)
        alpha_bar = self.alphas_bar[timesteps.long()].to(v.dtype).view(-1, 1, 1, 1)
        return torch.cat([alpha_bar.sqrt() * v + (1 - alpha_bar).sqrt() * x_t, variance], dim=1)


class FusedAttention(nn.Module):
    """QKVAttentionLegacy's softmax(q k^T / sqrt(C)) v, by torch's fused kernel.

    The legacy order has the heads outermost: [n, heads x (q, k, v) x C, tokens]. The kernel wants the tokens
    before the channels, in one piece: on a transposed view it falls back to plain matrix products.
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads

    def forward(self, qkv: Tensor) -> Tensor:
        """Attend within each head: [n, heads x 3C, tokens] to [n, heads x C, tokens]."""
        n, width, tokens = qkv.shape
        by_head = qkv.view(n, self.n_heads, 3, width // (3 * self.n_heads), tokens)
        q, k, v = by_head.transpose(3, 4).contiguous().unbind(dim=2)
        attended = scaled_dot_product_attention(q, k, v)
        return attended.transpose(2, 3).reshape(n, -1, tokens)


class UpsampledConvolution(nn.Module):
    """A 3 x 3 convolution of an image that was enlarged twice (nearest pixel), for 4/9 of its multiplications.

    Of the three pixels in a row that a kernel sees in the enlarged image, two are copies of one pixel. So the
    even output pixels of a row are a convolution of the small image with (w0, w1 + w2), the odd ones with
    (w0 + w1, w2), and likewise for columns: four 2 x 2 kernels in place of one 3 x 3, on a quarter of the
    pixels. All four are evaluated as one convolution, whose outputs are then interleaved.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.folded = nn.Conv2d(convolution.in_channels, 4 * convolution.out_channels, 2, padding=1)
        weight = convolution.weight.detach().double()
        kernels = [_fold(_fold(weight, row, dim=2), column, dim=3) for row in (0, 1) for column in (0, 1)]
        self.folded.weight.data = torch.cat(kernels).to(convolution.weight.dtype)
        assert convolution.bias is not None
        self.folded.bias = nn.Parameter(convolution.bias.detach().repeat(4))

    def forward(self, small: Tensor) -> Tensor:
        """Enlarge and convolve: [n, C, H, W] to [n, C', 2H, 2W]."""
        n, _, height, width = small.shape
        parts = self.folded(small).view(n, 2, 2, -1, height + 1, width + 1)
        rows = [
            torch.stack(
                [parts[:, row, column, :, row : row + height, column : column + width] for column in (0, 1)],
                dim=-1,
            )
            for row in (0, 1)
        ]
        return torch.stack(rows, dim=3).reshape(n, -1, 2 * height, 2 * width)


def _fold(weight: Tensor, parity: int, *, dim: int) -> Tensor:
    """Add up the two of three taps that see the same small pixel, for even (0) or odd (1) output pixels."""
    first, second, third = weight.unbind(dim)
    taps = [first, second + third] if parity == 0 else [first + second, third]
    return torch.stack(taps, dim)


def fuse_attention(network: nn.Module) -> None:
    """Replace every attention of a UNet by the fused one; it has no weights of its own."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, QKVAttentionLegacy):
                setattr(module, name, FusedAttention(child.n_heads))


def fold_upsampling(network: UNetModel) -> None:
    """Replace every convolution that follows upsampling, where the feature map is large enough."""
    side = network.image_size >> (len(network.channel_mult) - 1)
    for block in network.output_blocks:
        for position, layer in enumerate(block):
            inside = isinstance(layer, ResBlock) and isinstance(layer.h_upd, Upsample)
            if not inside and not isinstance(layer, Upsample):
                continue
            if side >= FOLD_FROM and inside:
                layer.h_upd = nn.Identity()
                layer.in_layers[-1] = UpsampledConvolution(layer.in_layers[-1])
            elif side >= FOLD_FROM and layer.use_conv:
                block[position] = UpsampledConvolution(layer.conv)
            side *= 2


def halve(network: UNetModel) -> None:
    """Let a UNet's torso compute in half precision, normalisations included.

    guided_diffusion widens what it normalises and narrows it again, which moves more bytes than all convolutions do.
    torch's own kernel adds up in single precision whatever it is given, and rounds mean and deviation once.
    """
    network.convert_to_fp16()
    network.dtype = torch.float16
    for torso in (network.input_blocks, network.middle_block, network.output_blocks):
        for module in list(torso.modules()):
            for name, child in module.named_children():
                if isinstance(child, GroupNorm32):
                    setattr(module, name, _half_norm(child))


def _half_norm(norm: GroupNorm32) -> nn.GroupNorm:
    """Return a GroupNorm with the same weights, in half precision."""
    halved = nn.GroupNorm(norm.num_groups, norm.num_channels, norm.eps, device="meta")
    halved.load_state_dict(norm.state_dict(), assign=True)
    return halved.half()


def accelerate(network: UNetModel) -> None:
    """Make a UNet that has its weights faster."""
    fuse_attention(network)
    fold_upsampling(network)
