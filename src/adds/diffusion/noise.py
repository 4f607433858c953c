"""Random numbers that depend on what they are for, and on nothing else.

Every normal deviate is a pure function of (seed, stage, image, sigma) and (sample, vote, timestep): not of
the batch size, the shard, or how often a job was interrupted, nor, up to rounding, of the device. That is what a
counter-based generator gives: the first tuple is hashed into the key of Philox4x32-10 (Salmon et al., 2011), the
second is its counter, so two samples of one image can't collide, and a million draws need no state.

The numbers of one key are a stream. Samples of several streams can be drawn side by side: a sample is then known by an
id, its stream's place in the upper half and its number in the lower (`sample_ids`). Of one stream, ids are numbers.
"""

import copy
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adds.registry import Stage

Words = NDArray[np.uint64]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_BLOCKS_AT_ONCE = 1 << 20

SHARED = 0
"""The vote number of what all votes of a sample share; their own numbers start at 1."""


def sample_ids(numbers: Tensor, stream: int) -> Tensor:
    """Return the ids of samples with these numbers, of the stream at this place."""
    return (stream << 32) | numbers


def stream_of(samples: Tensor) -> Tensor:
    """Return the places of the streams that samples belong to, by their ids."""
    return samples >> 32


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> list[Tensor]:
    """Philox4x32-10: four 32-bit counter words and two of the key to four random ones, in int64s that broadcast."""
    if counter[0].device.type != "cpu":
        return philox_in_torch(counter, key)
    counter_words, key_words = ([word.numpy().view(np.uint64) for word in words] for words in (counter, key))
    return [torch.from_numpy(word.view(np.int64)) for word in philox_in_numpy(counter_words, key_words)]


def philox_in_torch(counter: Sequence[Tensor], key: Sequence[Tensor]) -> list[Tensor]:
    """Philox on any device."""
    c0, c1, c2, c3 = counter
    for k0, k1 in _round_keys(key):
        # A product of two 32-bit words wraps in int64 but keeps its 64 bits; the mask undoes the sign.
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        high0, low0 = (product0 >> 32) & _MASK, product0 & _MASK
        high1, low1 = (product1 >> 32) & _MASK, product1 & _MASK
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return [c0, c1, c2, c3]


def philox_in_numpy(counter: Sequence[Words], key: Sequence[Words]) -> list[Words]:
    """Philox on a CPU, where numpy's integers take half the time of torch's."""
    c0, c1, c2, c3 = counter
    multiplier0, multiplier1 = map(np.uint64, _MULTIPLIERS)
    half, mask = np.uint64(32), np.uint64(_MASK)
    for k0, k1 in _round_keys(key):
        product0, product1 = c0 * multiplier0, c2 * multiplier1
        c0, c2 = (product1 >> half) ^ c1, (product0 >> half) ^ c3
        c0 ^= k0
        c2 ^= k1
        product0 &= mask
        product1 &= mask
        c1, c3 = product1, product0
    return [c0, c1, c2, c3]


def _round_keys(key: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for number in range(_ROUNDS):
        yield (key[0] + number * _KEY_INCREMENTS[0]) & _MASK, (key[1] + number * _KEY_INCREMENTS[1]) & _MASK


def box_muller(words: Sequence[Tensor]) -> Tensor:
    """Three uniform 32-bit words ([...]) to two independent standard normals ([..., 2], float32).

    The radius takes two words, which is fine enough near 0 for a tail up to 9.4 sigma; for the angle, one is more
    than float32 can hold.
    """
    uniform = words[0].float().mul_(2.0**32).add_(words[1]).add_(0.5).mul_(2.0**-64)
    radius = uniform.log_().mul_(-2).sqrt_()
    angle = words[2].float().mul_(2 * math.pi * 2.0**-32)
    return torch.stack([torch.cos(angle).mul_(radius), angle.sin_().mul_(radius)], dim=-1)


class Noise:
    """The normal deviates of one image at one sigma in one stage, or of several such streams (`together`).

    ``image`` is the image's number in its data set. Methods draw the same numbers for the same (sample, vote,
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
        self.device = torch.device(device)
        words = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
        self._keys = torch.tensor([words], device=self.device)
        self._used: int | None = None

    @classmethod
    def together(cls, streams: "Sequence[Noise]") -> "Noise":
        """Return several streams in one: samples are known by their ids."""
        joined = copy.copy(streams[0])
        joined._keys = torch.cat([stream._keys for stream in streams])
        return joined

    def __len__(self) -> int:
        """How many streams there are."""
        return len(self._keys)

    def beside(self, timestep: int) -> "Noise":
        """Return the same random numbers without those of ``timestep`` that all votes share: they are used up."""
        rest = copy.copy(self)
        rest._used = timestep
        return rest

    def normal(
        self,
        shape: tuple[int, ...],
        *,
        samples: Tensor,
        votes: Tensor | int = SHARED,
        timestep: int,
    ) -> Tensor:
        """Draw N(0, I) of ``shape`` for every sample, given by its id: float32 [len(samples), *shape].

        ``votes`` is one number for all, or one for each sample. ``timestep`` says which step of the chain the
        noise is for; the length of the schedule stands for the noise that the chain starts from.
        """
        if timestep == self._used and bool((torch.as_tensor(votes) == SHARED).any()):
            raise PermissionError(f"the noise of timestep {timestep} was released: it must not be drawn again")
        size = math.prod(shape)
        blocks = torch.arange(-(-size // 2), device=self.device)
        samples = samples.to(self.device)
        votes = torch.full_like(samples, votes) if isinstance(votes, int) else votes.to(self.device)
        rows_at_once = max(1, _BLOCKS_AT_ONCE // len(blocks))
        parts = [
            self._rows(part, vote, blocks, timestep)[:, :size]
            for part, vote in zip(samples.split(rows_at_once), votes.split(rows_at_once), strict=True)
        ]
        return torch.cat(parts).view(-1, *shape)

    def _rows(self, samples: Tensor, votes: Tensor, blocks: Tensor, timestep: int) -> Tensor:
        numbers, keys = samples & _MASK, self._keys[stream_of(samples)] if len(self) > 1 else self._keys
        rows = (numbers, votes, torch.full_like(numbers, timestep))  # a row each, as the keys may have
        counter = (blocks[None, :], *(word[:, None] for word in rows))
        words = philox(counter, (keys[:, :1], keys[:, 1:]))
        return box_muller(words[:3]).flatten(1)
