"""Networks evaluated in batches of one fixed size, which shrinks where a GPU's memory is too small."""

import contextlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


_TOO_LITTLE = re.compile(
    r"(CUDA|HIP|CUDA driver) error: out of memory"
    r"|(CUDNN|CUBLAS|HIPBLAS)_STATUS_(ALLOC|INTERNAL_ERROR_DEVICE_ALLOCATION)_FAILED"  # cuDNN's words since version 9
)
_PERHAPS_TOO_LITTLE = re.compile(
    r"unable to find an engine to execute this computation"  # each of cuDNN's ways to compute a convolution failed
    r"|(CUDNN|CUBLAS)_STATUS_NOT_INITIALIZED"  # a library that is first used when hardly any memory is left
)
"""What is said for want of memory, and for other reasons too."""
_NEARLY_FULL = 0.1


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether an error is for want of a GPU's memory: libraries below torch have words of their own for it."""
    if isinstance(error, torch.OutOfMemoryError) or _TOO_LITTLE.search(str(error)):
        return True
    return bool(_PERHAPS_TOO_LITTLE.search(str(error))) and _is_nearly_full()


def _is_nearly_full() -> bool:
    """Tell whether hardly a tenth of the GPU's memory is free, or held by torch without being used."""
    free, memory = torch.cuda.mem_get_info()
    return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < _NEARLY_FULL * memory


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
        self._seconds = 0.0
        self._timed: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        self._evaluated = self._wanted = 0

    @property
    def seconds(self) -> float:
        """How long the function has taken in all; waits for a GPU that is still at it."""
        if self._timed:
            self._timed[-1][1].synchronize()
        self._add_finished()
        return self._seconds

    def _add_finished(self) -> None:
        """Add the times of batches that the GPU has finished; waits for none."""
        while self._timed and self._timed[0][1].query():
            started, ended = self._timed.popleft()
            self._seconds += started.elapsed_time(ended) / 1000

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
            except RuntimeError as error:
                if self.size == 1 or not is_out_of_memory(error):
                    raise
            # Only here, outside the exception's reach, has the failed attempt let go of its memory.
            self.size //= 2
            torch.cuda.empty_cache()
            logger.warning("the GPU's memory is too small: going on with batches of %d", self.size)
        return torch.cat(parts)

    def _padded(self, function: Callable[[Tensor], Tensor], part: Tensor) -> Tensor:
        with torch.inference_mode(), self._timing(on_gpu=part.is_cuda):
            padding = part[-1:].expand(self.size - len(part), *part.shape[1:])
            values = function(torch.cat([part, padding]) if len(padding) else part)[: len(part)]
        self._evaluated += self.size
        self._wanted += len(part)
        return values

    @contextlib.contextmanager
    def _timing(self, *, on_gpu: bool) -> Iterator[None]:
        """Time a batch: on a GPU between two events, so that nothing has to wait for it."""
        if not on_gpu:
            before = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - before
            return
        self._add_finished()
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        started.record()
        yield
        ended.record()
        self._timed.append((started, ended))
