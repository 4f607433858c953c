"""The diffusion model compiled ahead of time: once for all jobs, which load it in milliseconds.

The compiler fuses what is between the convolutions. It needs to know the architecture only: jobs put the weights
in, so that it can work while a model is still being trained or downloaded. What it makes runs on processors like
the one it was made on and with the same torch. So a description of both stands beside it, and elsewhere jobs go on
with the network as it is, as they do where the compiled one gives other values.
"""

import json
import logging
import platform
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)

VERSION = 2
"""Raised when the same network would be compiled to something else: what was compiled before isn't used then."""

MOST_DIFFERENCE = {"cpu": 1e-4, "cuda": 3e-2}
"""How far a compiled network may be from the original, in parts of its largest value, before it is thrown away.

GPUs round to half precision, or to TF32 inside convolutions.
"""

_EXAMPLES = 2
_MOST_STATES = 1 << 16
_SETTINGS = {
    # Small tensors too: they would become numbers in the code.
    "always_keep_tensor_constants": True,
    "aot_inductor.package_constants_in_so": False,
}


def target(device: torch.device) -> dict[str, str]:
    """Say what compiled code depends on besides the network: torch, the system and the processor.

    Code for a GPU has a part that runs on the CPU.
    """
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else f"model name: {platform.processor()}"
    features = sorted(set(re.findall(r"^(?:model name|flags|Features)\s*:.*", text, re.MULTILINE)))
    processor = sha256("\n".join(features).encode()).hexdigest()[:16]
    if device.type == "cuda":
        processor += f" {torch.cuda.get_device_name(device)}"
    return {
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor,
    }


def _described(facts: Mapping[str, str], device: torch.device) -> dict[str, str]:
    return {**facts, "version": str(VERSION), **target(device)}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


def _examples(shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    states = torch.randn(_EXAMPLES, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    return states, torch.linspace(0, 999, _EXAMPLES, device=device)


def compile_network(network: nn.Module, package: Path | str, *, shape: tuple[int, ...], device: torch.device) -> None:
    """Compile a network, whatever its weights, for states of ``shape`` ([C, H, W]) in batches of any size."""
    batch = torch.export.Dim("batch", min=2, max=_MOST_STATES)
    settings = {**_SETTINGS, "compile_threads": torch.get_num_threads()}
    with torch.no_grad():
        exported = torch.export.export(network, _examples(shape, device), dynamic_shapes=({0: batch}, {0: batch}))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=settings)


def check_values(
    compiled: "CompiledNetwork", network: nn.Module, *, shape: tuple[int, ...], device: torch.device
) -> float:
    """Return the largest difference to the original on a few states, in parts of its largest value.

    One that is too large is an error.
    """
    with torch.inference_mode():
        examples = _examples(shape, device)
        expected = network(*examples)
        difference = float((compiled(*examples) - expected).abs().max() / expected.abs().max())
    most = MOST_DIFFERENCE[device.type]
    if not difference <= most:
        raise ArithmeticError(f"its values differ by {difference:.1e} from the original's, more than {most}")
    return difference


def make_package(
    network: nn.Module,
    package: Path | str,
    description: Path | str,
    *,
    facts: Mapping[str, str],
    shape: tuple[int, ...],
    device: torch.device,
) -> None:
    """Compile a network of which ``facts`` hold, and describe the result; leave it empty where that fails.

    The network's weights don't matter, as long as they give values that can be compared. It needs a C++ compiler
    (on CPUs) or Triton (on GPUs). Nothing but speed depends on it.
    """
    described = _described(facts, device)
    try:
        compile_network(network, package, shape=shape, device=device)
        difference = check_values(CompiledNetwork(network, package), network, shape=shape, device=device)
        logger.info("compiled; the largest difference to the original's values is %.1e", difference)
    except Exception as error:  # whatever a compiler may say: without it jobs are slower, not wrong
        reason = _first_line(error)
        logger.warning("the diffusion model can't be compiled here, jobs run slower: %s", reason, exc_info=True)
        described["failed"] = reason
        Path(package).write_bytes(b"")
    Path(description).write_text(json.dumps(described, indent=2) + "\n")


class CompiledNetwork:
    """The compiled network with the original's weights; a single state, for which it isn't made, goes to that."""

    def __init__(self, network: nn.Module, package: Path | str) -> None:
        self._network = network
        # What torch._inductor.aoti_load_package wraps, without the two seconds that importing the compiler takes.
        self._loader = torch._C._aoti.AOTIModelPackageLoader(str(package), "model", False, 1, -1)
        weights = network.state_dict()
        missing = [name for name in self._loader.get_constant_fqns() if name not in weights]
        if missing:
            raise RuntimeError(f"it was compiled from a network with other weights: {', '.join(missing[:5])}")
        self._loader.load_constants(weights, use_inactive=False, check_full_update=True, user_managed=True)

    def __call__(self, x_t: Tensor, timesteps: Tensor) -> Tensor:
        """Evaluate the network."""
        evaluated: Tensor
        if len(x_t) == 1:
            evaluated = self._network(x_t, timesteps)
            return evaluated
        try:
            (evaluated,) = self._loader.boxed_run([x_t, timesteps])
        except RuntimeError as error:
            if not x_t.is_cuda:
                raise
            # Compiled code tells of every failure only where it was. A smaller batch may help.
            raise torch.OutOfMemoryError(f"the compiled network failed, for lack of memory perhaps: {error}") from error
        return evaluated


def load_package(
    network: nn.Module,
    package: Path | str,
    *,
    facts: Mapping[str, str],
    shape: tuple[int, ...],
    device: torch.device,
) -> CompiledNetwork | nn.Module:
    """Load what was compiled, or return the network itself where that isn't for these facts and this machine.

    It isn't used either where its values aren't the network's.
    """
    found: dict[str, str] = json.loads(Path(package).with_suffix(".json").read_text())
    expected = _described(facts, device)
    if "failed" in found:
        problem = found["failed"]
    elif others := [key for key in expected if found.get(key) != expected[key]]:
        problem = f"it was compiled for another {', '.join(others)}"
    else:
        try:
            compiled = CompiledNetwork(network, package)
            check_values(compiled, network, shape=shape, device=device)
            return compiled
        except (RuntimeError, ArithmeticError) as error:
            problem = _first_line(error)
    logger.warning("the diffusion model runs uncompiled, and slower (delete %s to try again): %s", package, problem)
    return network
