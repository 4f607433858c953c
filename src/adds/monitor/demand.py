"""What evaluating a network asks of a processor, counted operator by operator without computing anything.

A processor needs time for two things: for the multiplications of products (convolutions, matrices, attention), during
which their tensors come and go, and for moving the tensors of everything between them. Together that is the roofline
of the network: `Demand.seconds`.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from adds.models.fast_unet import accelerate, halve
from adds.models.pipeline import untrained_classifier
from adds.models.unet import build_unet

TERA, GIB = 1e12, 2**30

PRODUCTS = {"convolution", "mm", "addmm", "bmm", "baddbmm", "attention"}
"""Operators whose time is that of their multiplications."""

MOVES_NOTHING = {
    "view", "_unsafe_view", "expand", "permute", "transpose", "t", "slice", "select", "unbind", "split", "alias",
    "split_with_sizes", "squeeze", "unsqueeze", "detach", "as_strided", "empty", "empty_like", "_reshape_alias",
}  # fmt: skip

CASTS, NORMS = {"_to_copy"}, {"native_group_norm", "native_layer_norm"}


@dataclass(frozen=True)
class Demand:
    """What one evaluation of a batch asks for; bytes are those of the tensors that operators read and write."""

    operations: int
    """Floating-point operations of products: a multiplication and an addition are two."""

    bytes_of: Counter[str]
    """Bytes by operator."""

    operators: int
    weights: int
    """Bytes of the weights."""

    peak: int
    """Bytes that are held at most, weights included."""

    @property
    def moved(self) -> int:
        """The bytes that all operators move."""
        return self.bytes_of.total()

    @property
    def moved_between(self) -> int:
        """The bytes that operators move which are no products."""
        return sum(number for name, number in self.bytes_of.items() if name not in PRODUCTS)

    def seconds(self, *, tflops: float, bandwidth: float) -> float:
        """Return the time on a processor that reaches ``tflops`` in products and ``bandwidth`` (TB/s) between them."""
        return self.operations / (tflops * TERA) + self.moved_between / (bandwidth * TERA)


def _tensors(*values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


class _Operators(TorchDispatchMode):
    """Counts operators and bytes, and what is held: a storage counts from its first operator until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_of: Counter[str] = Counter()
        self.operators = self.peak = self._held = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.add(func._schema.name.split("::")[-1], _tensors(args, kwargs), _tensors(out))
        return out

    def add(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Count one operator."""
        self.hold([*inputs, *outputs])
        if name not in MOVES_NOTHING:
            self.operators += 1
            self.bytes_of[name] += sum(tensor.nbytes for tensor in (*inputs, *outputs))

    def hold(self, tensors: list[Tensor]) -> None:
        """Count the storages of tensors as held until they are let go."""
        for storage in (tensor.untyped_storage() for tensor in tensors):
            if storage._cdata in self._known:
                continue
            self._known.add(storage._cdata)
            self._held += storage.nbytes()
            self.peak = max(self.peak, self._held)
            weakref.finalize(storage, self._let_go, storage._cdata, storage.nbytes())

    def _let_go(self, storage: int, size: int) -> None:
        self._known.discard(storage)
        self._held -= size


class _Attention(TorchFunctionMode):
    """Counts attention as the fused kernel that GPUs have for it: it never writes its matrix of weights."""

    def __init__(self, operators: _Operators) -> None:
        super().__init__()
        self._operators = operators

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        attended = torch.empty_like(args[0])
        self._operators.add("attention", _tensors(args, kwargs), [attended])
        return attended


def operations(network: nn.Module, *inputs: Tensor) -> int:
    """Count the floating-point operations of one evaluation (a multiplication and an addition are two)."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(*inputs)
    return int(counter.get_total_flops())


@contextmanager
def counted() -> Iterator[_Operators]:
    """Count what is evaluated here."""
    operators = _Operators()
    with torch.no_grad(), operators, _Attention(operators):
        yield operators


def demand_of(network: nn.Module, *inputs: Tensor) -> Demand:
    """Count one evaluation; on torch's meta device that takes neither time nor memory."""
    with counted() as operators:
        operators.hold([*network.parameters(), *network.buffers()])
        weights = operators.peak
        network.eval()(*inputs)
    return Demand(operations(network, *inputs), operators.bytes_of, operators.operators, weights, operators.peak)


def demand_of_diffusion(settings: Mapping[str, Any], *, half: bool) -> Demand:
    """Count a batch of the diffusion model, as jobs evaluate it."""
    unet, n = settings["unet"], settings["batch_size"]
    with torch.device("meta"):
        network = build_unet(unet)
        accelerate(network)
        if half:
            halve(network)
        return demand_of(
            network, torch.empty(n, unet["in_channels"], unet["image_size"], unet["image_size"]), torch.zeros(n)
        )


def demand_of_classifier(settings: Mapping[str, Any], shape: tuple[int, ...], *, half: bool) -> Demand | None:
    """Count a batch of the classifier of images of ``shape`` ([C, H, W]), all of it in one precision.

    What it takes to bring them to another size isn't counted. None of one whose architecture is unknown until it has
    been obtained.
    """
    dtype = torch.float16 if half else torch.float32
    with torch.device("meta"):
        network = untrained_classifier(settings)
        if network is None:
            return None
        size = getattr(network, "input_size", shape[1:])
        return demand_of(network.to(dtype), torch.empty(settings["batch_size"], shape[0], *size, dtype=dtype))
