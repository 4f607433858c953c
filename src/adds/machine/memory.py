"""Memory that a process has freed stays its own: on CPUs a seventh of a network's time went to getting it back."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_NEVER = -1


def keep_freed_memory() -> None:
    """Tell glibc not to give freed memory back to the system.

    It does so by default with the tensors between a network's layers, and then every page of the next one is a
    fault that the system serves with zeros. One arena for all threads, so that what one of them frees serves
    the others. With other C libraries nothing is changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
