"""Random numbers that depend on what they are for, and on nothing else.

Every normal deviate is a pure function of (seed, stage, image, sigma) and (sample, vote, timestep): not of
the batch size, the shard, the device, or how often a job was interrupted. That is what a counter-based
generator gives: the first tuple is hashed into the key of Philox4x32-10 (Salmon et al., 2011), the second is
its counter, so two samples of one image can't collide, and a million draws need no state.
"""

import hashlib
import math
from typing import Literal

import torch
from torch import Tensor

Stage = Literal["selection", "estimation"]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_BLOCKS_AT_ONCE = 1 << 20

SHARED = 0
"""The vote number of what all votes of a sample share; their own numbers start at 1."""


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Philox4x32-10: four 32-bit counter words to four random ones, held in int64 tensors that broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # A product of two 32-bit words wraps in int64 but keeps its 64 bits; the mask undoes the sign.
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        high0, low0 = (product0 >> 32) & _MASK, product0 & _MASK
        high1, low1 = (product1 >> 32) & _MASK, product1 & _MASK
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_INCREMENTS[0]) & _MASK, (k1 + _KEY_INCREMENTS[1]) & _MASK
    return c0, c1, c2, c3


def _uniform(high: Tensor, low: Tensor) -> Tensor:
    """Two 32-bit words to one number in (0, 1], fine enough for a normal's tail up to 9.4 sigma."""
    return (high.double() * 2.0**32 + low.double() + 0.5) * 2.0**-64


def _box_muller(words: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Four uniform 32-bit words to two independent standard normals."""
    radius = torch.sqrt(-2 * torch.log(_uniform(words[0], words[1])))
    angle = 2 * math.pi * _uniform(words[2], words[3])
    return radius * torch.cos(angle), radius * torch.sin(angle)


class Noise:
    """The normal deviates of one image at one sigma in one stage.

    ``image`` is the image's index in its data set. Methods draw the same numbers for the same (sample, vote,
    timestep), so that they can be compared in pairs.
    """

    def __init__(
        self,
        *,
        seed: int,
        stage: Stage,
        image: int,
        sigma: float,
        device: torch.device | str = "cpu",
    ) -> None:
        name = f"{seed}/{stage}/{image}/{float(sigma).hex()}"
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self._key = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
        self.device = torch.device(device)

    def normal(
        self,
        shape: tuple[int, ...],
        *,
        samples: Tensor,
        votes: Tensor | int = SHARED,
        timestep: int,
    ) -> Tensor:
        """Draw N(0, I) of ``shape`` for every sample: float32 [len(samples), *shape].

        ``votes`` is one number for all, or one for each sample. ``timestep`` says which step of the chain the
        noise is for; the length of the schedule stands for the noise that the chain starts from.
        """
        size = math.prod(shape)
        blocks = torch.arange(-(-size // 2), device=self.device)
        samples = samples.to(self.device)
        votes = torch.as_tensor(votes, device=self.device).expand(samples.shape)
        rows_at_once = max(1, _BLOCKS_AT_ONCE // len(blocks))
        parts = [
            self._rows(part, vote, blocks, timestep)[:, :size]
            for part, vote in zip(samples.split(rows_at_once), votes.split(rows_at_once), strict=True)
        ]
        return torch.cat(parts).view(-1, *shape)

    def _rows(self, samples: Tensor, votes: Tensor, blocks: Tensor, timestep: int) -> Tensor:
        step = torch.tensor(timestep, device=self.device)
        words = philox((blocks[None, :], samples[:, None], votes[:, None], step), self._key)
        return torch.stack(_box_muller(words), dim=-1).flatten(1).float()
