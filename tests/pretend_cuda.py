"""A GPU where there is none: it computes on the CPU, and refuses what CUDA would refuse.

    with pretend_cuda() as counts:
        x = torch.zeros(3, device="cuda")
        x + torch.zeros(3)  # RuntimeError: two devices
        x.numpy()  # TypeError: not on the host
    counts.kernels, counts.bytes, counts.waits

Most errors that code makes on its first GPU are of devices and dtypes, and a CPU hides them. Here a tensor on the GPU
is a wrapper that says so and holds a CPU tensor. A dispatch mode sees every operator, holds it to CUDA's rules,
computes with what is inside and wraps what comes out.

Not seen: errors of real kernels and their rounding, memory, what is asynchronous, compiled code.
"""

import contextlib
import ctypes
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import adds

GPU, CPU = torch.device("cuda:0"), torch.device("cpu")
NAME, MEMORY = "Pretended GPU", 16 << 30
HALVES = (torch.float16, torch.bfloat16)
OWN_CODE = (str(Path(adds.__file__).parent), str(Path(__file__).parents[1] / "scripts"))

aten = torch.ops.aten
Operator = torch._ops.OpOverload
Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


# What is counted


@dataclass
class Counts:
    """What a GPU would have had to do since it was last `clear`: what it costs there can't be timed here."""

    kernels: Counter[str] = field(default_factory=Counter)
    """How many kernels were launched, by operator: one for each that is more than a view."""
    bytes: Counter[str] = field(default_factory=Counter)
    """How much kernels read and wrote, by dtype."""
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often the CPU had to wait, by reason and line of the project's code."""
    emptied: int = 0
    """How often the cache of freed memory was emptied."""
    peaks_forgotten: int = 0
    """How often the largest memory so far was forgotten."""

    def clear(self) -> None:
        """Start anew."""
        self.__init__()  # type: ignore[misc]

    def launch(self, name: str, tensors: list[Tensor]) -> None:
        """Count a kernel."""
        self.kernels[name] += 1
        for tensor in tensors:
            self.bytes[str(tensor.dtype).removeprefix("torch.")] += tensor.numel() * tensor.element_size()

    def wait(self, reason: str) -> None:
        """Count a wait."""
        self.waits[reason, _line()] += 1


def _line() -> str:
    """Return the innermost line of the project's own code that led here."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(OWN_CODE):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"


_counts = Counts()


# Tensors


class OnGPU(Tensor):
    """A tensor on the GPU; ``content`` has its numbers."""

    content: Tensor

    @staticmethod
    def __new__(cls, content: Tensor) -> "OnGPU":
        # A view of an ordinary tensor must not be an inference tensor, so no wrapper is one. What is inside may be.
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext():
            return torch.Tensor._make_wrapper_subclass(
                cls,
                content.size(),
                strides=content.stride(),
                storage_offset=content.storage_offset(),
                dtype=content.dtype,
                layout=content.layout,
                device=GPU,
            )

    def __init__(self, content: Tensor) -> None:
        self.content = content

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnGPU({self.content!r})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], _types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        own = _FUNCTIONS.get(func)
        if own is not None:
            return own(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("a tensor on the pretended GPU was used after pretend_cuda()")


def on_gpu(value: Any) -> bool:
    """Tell whether a value is a tensor on the GPU."""
    return isinstance(value, OnGPU)


def _content(value: Any) -> Any:
    return value.content if isinstance(value, OnGPU) else value


def _wrapped(value: Any) -> Any:
    return OnGPU(value) if isinstance(value, Tensor) else value


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to all that is in an operator's arguments or results."""
    if isinstance(tree, list | tuple) and not isinstance(tree, torch.Size):
        return type(tree)([_mapped(function, leaf) for leaf in tree])
    if isinstance(tree, dict):
        return {key: _mapped(function, leaf) for key, leaf in tree.items()}
    return function(tree)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, list | tuple | dict):
        for leaf in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(leaf)
    else:
        yield tree


def _tensors(*trees: Any) -> list[Tensor]:
    return [leaf for leaf in _leaves(trees) if isinstance(leaf, Tensor)]


# Rules

PRODUCTS = {
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "linear", "convolution", "_convolution",
    "convolution_overrideable",
}  # fmt: skip
NORMS = {"native_layer_norm", "native_group_norm"}
COPIES = {"copy_", "_to_copy"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
NUMBERS_MAY_JOIN = {"where", "masked_fill", "masked_fill_", "fill_", "clamp", "clamp_min", "clamp_max", "lerp"}
"""Operators that take a CPU tensor of one number, besides those that torch calls pointwise."""
FREE = {
    "view", "_unsafe_view", "expand", "permute", "transpose", "t", "slice", "select", "unbind", "split", "alias",
    "split_with_sizes", "squeeze", "unsqueeze", "detach", "as_strided", "lift_fresh", "diagonal", "unfold",
    "_reshape_alias", "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "_local_scalar_dense",
}  # fmt: skip
"""Operators that launch no kernel."""
SIZED_BY_VALUES = {"nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select"}
"""Operators whose result's shape the CPU doesn't know before the GPU has finished."""


@cache
def _name(func: Operator) -> str:
    return str(func._schema.name.split("::")[-1])


@cache
def _is_composite(func: Operator) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _refuse(func: Any, problem: str) -> NoReturn:
    raise RuntimeError(f"{problem} [pretended GPU, {func}]")


def _check_devices(func: Operator, args: Args, kwargs: Kwargs) -> None:
    """All tensors of an operator are on one device; numbers may join, and indices may come from the CPU."""
    tensors, name = _tensors(args, kwargs), _name(func)
    strangers = [tensor for tensor in tensors if not on_gpu(tensor)]
    if not strangers or len(strangers) == len(tensors) or name in COPIES:
        return
    if name in INDEXING:
        if not on_gpu(args[0]):
            _refuse(func, "indices should be on the CPU, as the indexed tensor is")
        if any(not on_gpu(index) for index in _tensors(args[1])):
            _counts.wait("indices of the CPU")
        strangers = [tensor for tensor in _tensors(args[2:], kwargs) if not on_gpu(tensor) and tensor.ndim]
    elif torch.Tag.pointwise in func.tags or name in NUMBERS_MAY_JOIN:
        written = func._schema.is_mutable and not on_gpu(args[0])
        strangers = [args[0]] if written else [tensor for tensor in strangers if tensor.ndim]
    if strangers:
        _refuse(func, "Expected all tensors to be on the same device, but found two: cuda:0 and cpu")


def _check_dtypes(func: Operator, args: Args, kwargs: Kwargs) -> None:
    """Products and normalisations have no kernels for two dtypes (CPUs have some), and products none for integers."""
    name = _name(func)
    if name not in PRODUCTS and name not in NORMS:
        return
    dtypes = {tensor.dtype for tensor in _tensors(args, kwargs)}
    if len(dtypes) > 1:
        _refuse(func, f"expected operands of one dtype but found {', '.join(sorted(map(str, dtypes)))}")
    if name in PRODUCTS and not dtypes.pop().is_floating_point:
        _refuse(func, "not implemented for integers")


def _check_generators(target: torch.device, args: Args, kwargs: Kwargs) -> None:
    for leaf in _leaves((args, kwargs)):
        if isinstance(leaf, torch.Generator) and leaf.device.type != target.type:
            raise RuntimeError(f"Expected a '{target.type}' device type for generator but found '{leaf.device.type}'")


def _target(args: Args, kwargs: Kwargs) -> torch.device | None:
    """Return the device on which a result is to be, where that is said or one of the tensors is on the GPU."""
    device = kwargs.get("device")
    if device is None:
        return GPU if any(map(on_gpu, _tensors(args, kwargs))) else None
    if device.type == "cuda" and device.index not in (None, 0):
        raise RuntimeError("CUDA error: invalid device ordinal: there is one pretended GPU")
    return device  # type: ignore[no-any-return]


# Operators


def _execute(func: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Check, compute, count, wrap."""
    target = _target(args, kwargs)
    if target is None or (target.type != "cuda" and not any(map(on_gpu, _tensors(args, kwargs)))):
        return func(*args, **kwargs)
    _check_devices(func, args, kwargs)
    _check_dtypes(func, args, kwargs)
    _check_generators(target, args, kwargs)
    if _name(func) == "copy_":
        target = GPU if on_gpu(args[0]) else CPU
    inside, named = _mapped(_content, args), _mapped(_content, dict(kwargs))
    if "device" in named:
        named["device"] = CPU
    mutable = func._schema.is_mutable
    if mutable and inside[0].is_inference() and not torch.is_inference_mode_enabled():
        _refuse(func, "Inplace update to inference tensor outside InferenceMode is not allowed")
    out = _computed(func, inside, named)
    _count(func, args, kwargs, out, target)
    if mutable:
        return _written(func, args, kwargs)
    return _mapped(_wrapped, out) if target.type == "cuda" else out


def _computed(func: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Compute on the CPU; of half precision in single, rounded once, where GPUs do so inside or the CPU can't."""
    halves = [tensor.dtype for tensor in _tensors(args, kwargs) if tensor.dtype in HALVES]
    if not halves or _name(func) not in PRODUCTS | NORMS:
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if not halves or "not implemented for 'Half'" not in str(error) or func._schema.is_mutable:
                raise

    def widened(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype in HALVES else value

    def narrowed(value: Any) -> Any:
        return value.to(halves[0]) if isinstance(value, Tensor) and value.dtype == torch.float32 else value

    out = func(*_mapped(widened, args), **_mapped(widened, kwargs))
    if _name(func) == "native_group_norm":
        x, weight, bias = _mapped(widened, args[:3])
        return _normalised(x, weight, bias, narrowed(out[1]), narrowed(out[2]))
    return (narrowed(out[0]), *out[1:]) if _name(func) in NORMS else _mapped(narrowed, out)


def _normalised(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise as CUDA's kernel does: it rounds mean and deviation of each group, and nothing else on the way."""
    of_channel = x.shape[1] // mean.shape[1]
    means, deviations = (found.float().repeat_interleave(of_channel, dim=1) for found in (mean, rstd))
    scale = deviations * weight
    shape = (*scale.shape, *[1] * (x.ndim - 2))
    return (x * scale.view(shape) + (bias - scale * means).view(shape)).to(mean.dtype), mean, rstd


def _count(func: Operator, args: Args, kwargs: Kwargs, out: Any, target: torch.device) -> None:
    name, inputs = _name(func), _tensors(args, kwargs)
    if name in COPIES:
        if on_gpu(inputs[-1]) != (target.type == "cuda"):
            _counts.wait(f"copy to the {'GPU' if target.type == 'cuda' else 'CPU'}")
    elif name == "_local_scalar_dense":
        _counts.wait("a number is read")
    elif name in SIZED_BY_VALUES or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _counts.wait(name)
    elif name in INDEXING and any(index.dtype == torch.bool for index in _tensors(args[1])):
        _counts.wait(f"{name} by a mask")
    if name not in FREE:
        _counts.launch(name, [*inputs, *_tensors(out)])


def _written(func: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Return what an operator has written to, as its caller knows it: a wrapper's content has changed with it."""
    named: dict[str, Any] = {
        **dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)),
        **kwargs,
    }
    arguments = [a for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    written = [named.get(argument.name) for argument in arguments]
    if len(func._schema.returns) > len(written) or any(
        (tensor.shape, tensor.stride()) != (_content(tensor).shape, _content(tensor).stride())
        for tensor in _tensors(written)
    ):
        raise NotImplementedError(f"the pretended GPU can't do {func}")
    if len(func._schema.returns) == 1:
        return written[0]
    return tuple(written) if func._schema.returns else None


class _Dispatch(TorchDispatchMode):
    """Sees every operator; in the slot of fake tensors, for which factory functions don't start CUDA."""

    _mode_key = torch._C._TorchDispatchModeKey.FAKE

    def __torch_dispatch__(self, func: Operator, _types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        kwargs = kwargs or {}
        if _is_composite(func) and _target(args, kwargs) is not None:
            with self:  # in inference mode they arrive whole, and rules are about their parts
                return func.decompose(*args, **kwargs)
        return _execute(func, args, kwargs)


class _Numbered(TorchFunctionMode):
    """Makes "cuda" the first GPU: torch would ask CUDA which one is current."""

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        return func(*map(_numbered, args), **{key: _numbered(value) for key, value in (kwargs or {}).items()})


def _numbered(value: Any) -> Any:
    return GPU if isinstance(value, str | torch.device) and str(value) == "cuda" else value


# Functions that reach the dispatcher in another form than they would on CUDA, or not at all


def _no_numpy(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **how: Any) -> Tensor:
    """Attention by a fused kernel: one device, one dtype, single precision inside; autocast casts what it is given."""
    operands = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    if not all(map(on_gpu, operands)):
        _refuse("scaled_dot_product_attention", "Expected query, key, value and mask to be on the same device")
    if torch.is_autocast_enabled("cuda"):
        operands = [one if one.dtype == torch.bool else one.to(torch.get_autocast_dtype("cuda")) for one in operands]
    dtypes = {one.dtype for one in operands[:3]} | {one.dtype for one in operands[3:] if one.dtype != torch.bool}
    if len(dtypes) > 1:
        _refuse("scaled_dot_product_attention", "Expected query, key, value and mask to have the same dtype")
    contents = [_content(one) for one in operands]
    with torch._C._DisableTorchDispatch():
        wide = [one.float() if one.dtype in HALVES else one for one in contents]
        attended = torch._C._nn.scaled_dot_product_attention(*wide, **how).to(contents[0].dtype)
    _counts.launch("scaled_dot_product_attention", [*contents, attended])
    return OnGPU(attended)


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    Tensor.numpy: _no_numpy,
    Tensor.__array__: _no_numpy,
    Tensor.tolist: lambda tensor: tensor.cpu().tolist(),
    torch.nn.functional.scaled_dot_product_attention: _attention,
}


# The machine


@contextlib.contextmanager
def _idle_guard() -> Iterator[None]:
    """Give torch's C++ code a guard of the current GPU that does nothing: that of the meta device."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libc10.so"))
    guards = (ctypes.c_void_p * 21).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    cuda, meta = 1, 14
    before, guards[cuda] = guards[cuda], guards[meta]
    try:
        yield
    finally:
        guards[cuda] = before


class _Event:
    """A moment on the GPU's clock, which is the CPU's; over only when it was waited for, or one that came later."""

    _waited_for = 0.0

    def __init__(self, *, enable_timing: bool = False) -> None:
        self._timed, self._seconds = enable_timing, 0.0

    def record(self) -> None:
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        _counts.wait("torch.cuda.Event.synchronize")
        _Event._waited_for = self._seconds

    def query(self) -> bool:
        return self._seconds <= _Event._waited_for

    def elapsed_time(self, end: "_Event") -> float:
        if not (self._timed and end._timed):
            raise RuntimeError("both events must be created with enable_timing [pretended CUDA]")
        return 1000 * (end._seconds - self._seconds)


@contextlib.contextmanager
def pretend_cuda() -> Iterator[Counts]:
    """Pretend that this machine has one GPU, and count what it does."""
    global _counts
    _counts = counts = Counts()
    if not torch.backends.cuda.is_built():
        torch._C._ensureCUDADeviceGuardSet()

    def empty_cache() -> None:
        counts.emptied += 1

    def forget_peak(_device: object = None) -> None:
        counts.peaks_forgotten += 1

    patches = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda _device=None: NAME,
        "get_device_capability": lambda _device=None: (8, 0),
        "mem_get_info": lambda _device=None: (MEMORY, MEMORY),
        "memory_reserved": lambda _device=None: 0,
        "memory_allocated": lambda _device=None: 0,
        "max_memory_allocated": lambda _device=None: 0,
        "reset_peak_memory_stats": forget_peak,
        "is_bf16_supported": lambda **_: True,
        "synchronize": lambda _device=None: counts.wait("torch.cuda.synchronize"),
        "empty_cache": empty_cache,
        "Event": _Event,
        "_lazy_init": lambda: None,
    }
    with contextlib.ExitStack() as stack:
        for name, value in patches.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(_idle_guard())
        stack.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        # Parameters on the CPU can't become wrappers: a network that moves gets new ones.
        overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrites)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        if torch.backends.cuda.is_built():  # cuDNN's operators can't run on CPUs
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.enter_context(_Numbered())
        stack.enter_context(_Dispatch())
        yield counts
