"""What must hold of values on a device before anything that follows from them is written."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

Failure = Callable[[], Exception]
_gathered: ContextVar[list[tuple[Tensor, Failure]] | None] = ContextVar("_gathered", default=None)


def require(holds: Tensor, failure: Failure) -> None:
    """Raise ``failure`` unless ``holds`` is true everywhere: at once, or for a GPU at the end of `together`."""
    waiting = _gathered.get()
    if waiting is not None and holds.is_cuda:
        waiting.append((holds.all(), failure))
    elif not bool(holds.all()):
        raise failure()


@contextmanager
def together() -> Iterator[None]:
    """Gather what is required of a GPU's values, and read all of it at the end: one wait for the GPU, not one for each.

    The first failure is raised, ahead of what came of it.
    """
    waiting: list[tuple[Tensor, Failure]] = []
    token = _gathered.set(waiting)
    try:
        yield
    finally:
        _gathered.reset(token)
        held = torch.stack([holds for holds, _ in waiting]).tolist() if waiting else []
        for one, (_, failure) in zip(held, waiting, strict=True):
            if not one:
                raise failure()
