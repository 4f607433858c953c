"""The same UNet, faster: fused attention and compilation over guided_diffusion's unmodified weights."""

import logging
from collections.abc import Callable

import torch
from guided_diffusion.unet import QKVAttentionLegacy
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

logger = logging.getLogger(__name__)


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


def fuse_attention(network: nn.Module) -> None:
    """Replace every attention of a UNet by the fused one; it has no weights of its own."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, QKVAttentionLegacy):
                setattr(module, name, FusedAttention(child.n_heads))


class Compiled:
    """A network that compiles itself when it is first evaluated, or goes on as it was where that fails.

    Compilation needs a C++ compiler (on CPUs) or Triton (on GPUs). Its result is cached on disk, so that later
    jobs start faster.
    """

    def __init__(self, network: nn.Module) -> None:
        self._plain = network
        self._chosen: Callable[[Tensor, Tensor], Tensor] | None = None

    def __call__(self, x_t: Tensor, timesteps: Tensor) -> Tensor:
        """Evaluate the network."""
        if self._chosen is None:
            return self._first(x_t, timesteps)
        return self._chosen(x_t, timesteps)

    def _first(self, x_t: Tensor, timesteps: Tensor) -> Tensor:
        from torch._dynamo.exc import TorchDynamoException  # takes seconds, which only compilation should cost
        from torch._inductor.exc import InductorError

        compiled = torch.compile(self._plain, dynamic=False)
        try:
            evaluated: Tensor = compiled(x_t, timesteps)
        except (TorchDynamoException, InductorError) as error:
            reason = str(error).strip().splitlines()[0]
            logger.warning("the diffusion model can't be compiled here and runs slower: %s", reason)
            self._chosen = self._plain
            evaluated = self._plain(x_t, timesteps)
        else:
            self._chosen = compiled
        return evaluated
