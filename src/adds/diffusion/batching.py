"""Networks evaluated in batches of one fixed size, which shrinks where a GPU's memory is too small."""

import logging
import time
from collections.abc import Callable

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


class Batches:
    """Applies a function to a tensor of any length, batch by batch.

    Networks are not bit-equal across batch sizes. Every batch is padded to ``size``, so that on one device a
    row's numbers don't depend on which others it shares a batch with. When the GPU runs out of memory the size
    is halved, once and for all, and the batch is tried again.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"batch_size is {size}: it must be at least 1")
        self.size = size
        self.seconds = 0.0
        """How long the function has taken in all, as far as a GPU doesn't work on after it has returned."""
        self._evaluated = self._wanted = 0

    @property
    def padding(self) -> float:
        """Which share of all rows that were evaluated was padding."""
        return 1 - self._wanted / self._evaluated if self._evaluated else 0.0

    def apply(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Return the function's value for every row, in order."""
        parts: list[Tensor] = []
        done = 0
        while done < len(rows):
            part = rows[done : done + self.size]
            try:
                parts.append(self._padded(function, part))
                done += len(part)
                continue
            except torch.OutOfMemoryError:
                if self.size == 1:
                    raise
            # Only here, outside the exception's reach, has the failed attempt let go of its memory.
            self.size //= 2
            torch.cuda.empty_cache()
            logger.warning("the GPU's memory is too small: going on with batches of %d", self.size)
        return torch.cat(parts)

    def _padded(self, function: Callable[[Tensor], Tensor], part: Tensor) -> Tensor:
        started = time.perf_counter()
        with torch.inference_mode():
            padding = part[-1:].expand(self.size - len(part), *part.shape[1:])
            values = function(torch.cat([part, padding]) if len(padding) else part)[: len(part)]
        self.seconds += time.perf_counter() - started
        self._evaluated += self.size
        self._wanted += len(part)
        return values
