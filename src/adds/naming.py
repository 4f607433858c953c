"""How methods are called, in which order they stand, and what they have in common; needs no torch."""

from collections.abc import Iterable
from typing import Literal

Stage = Literal["selection", "estimation"]
"""What samples are for: to select the class, or to estimate its probability."""

Setting = tuple[str, int]
"""A method and its number of votes."""

_NAMES = {
    "rs": "RS",
    "carlini": "Carlini et al.",
    "densepure": "DensePure",
    "adds": "ADDS",
    "adds_oneshot": "ADDS w/o unguided denoising",
}

GUIDED = frozenset({"adds", "adds_oneshot"})
"""The methods that use a guidance scale."""

VOTING = frozenset({"densepure", "adds"})
"""The methods that can take more than one vote."""

CONTAINED = {"adds_oneshot": "adds"}
"""Methods that are the one-shot denoised image of another: its samples hold theirs."""


def label(method: str, votes: int) -> str:
    """Return the paper's name of a method, with its votes where there are several."""
    name = _NAMES.get(method, method)
    return name if votes == 1 else f"{name}, {votes} votes"


def in_order(settings: Iterable[Setting]) -> list[Setting]:
    """Sort as the paper's tables do: by method, then by votes; methods it doesn't know come last."""
    order = list(_NAMES)
    return sorted(
        set(settings),
        key=lambda s: (order.index(s[0]) if s[0] in order else len(order), s[0], s[1]),
    )
