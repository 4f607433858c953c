"""The diffusion model compiled ahead of time: once for all jobs, which load it in milliseconds.

The compiler puts the weights into the code, in the layout that the processor likes best, and fuses what is between
the convolutions. What it makes runs on processors like the one it was made on and with the same torch. So a
description of both stands beside it, and elsewhere jobs go on with the network as it is.
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

VERSION = 1
"""Raised when the same network would be compiled to something else: what was compiled before isn't used then."""

MOST_DIFFERENCE = {"cpu": 1e-4, "cuda": 3e-2}
"""How far a compiled network may be from the original, in parts of its largest value, before it is thrown away.

GPUs round to half precision, or to TF32 inside convolutions.
"""

_EXAMPLES = 4
_MOST_STATES = 1 << 16


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


def compile_network(
    network: nn.Module, package: Path | str, *, shape: tuple[int, ...], device: torch.device
) -> float:
    """Compile a network for states of ``shape`` ([C, H, W]) in batches of any size.

    Returns the largest difference to the original, on a few random states, in parts of its largest value.
    """
    states = torch.randn(_EXAMPLES, *shape, device=device)
    timesteps = torch.linspace(0, 999, _EXAMPLES, device=device)
    batch = torch.export.Dim("batch", min=2, max=_MOST_STATES)
    with torch.no_grad():
        exported = torch.export.export(network, (states, timesteps), dynamic_shapes=({0: batch}, {0: batch}))
        settings = {"freezing": True, "compile_threads": torch.get_num_threads()}
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=settings)
        compiled = CompiledNetwork(network, package)
        expected = network(states, timesteps)
        return float((compiled(states, timesteps) - expected).abs().max() / expected.abs().max())


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

    It needs a C++ compiler (on CPUs) or Triton (on GPUs). Nothing but speed depends on it.
    """
    described = {**facts, **target(device)}
    try:
        difference = compile_network(network, package, shape=shape, device=device)
        most = MOST_DIFFERENCE[device.type]
        if not difference <= most:
            raise ArithmeticError(f"its values differ by {difference:.1e} from the original's, more than {most}")
        logger.info("compiled; the largest difference to the original's values is %.1e", difference)
    except Exception as error:  # whatever a compiler may say: without it jobs are slower, not wrong
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        logger.warning("the diffusion model can't be compiled here, jobs run slower: %s", reason, exc_info=True)
        described["failed"] = reason
        Path(package).write_bytes(b"")
    Path(description).write_text(json.dumps(described, indent=2) + "\n")


class CompiledNetwork:
    """The compiled network; a single state, for which it isn't made, goes to the original."""

    def __init__(self, network: nn.Module, package: Path | str) -> None:
        self._network = network
        # What torch._inductor.aoti_load_package wraps, without the two seconds that importing the compiler takes.
        self._loader = torch._C._aoti.AOTIModelPackageLoader(str(package), "model", False, 1, -1)

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
            raise torch.OutOfMemoryError(
                f"the compiled network failed, for lack of memory perhaps: {error}"
            ) from error
        return evaluated


def load_package(
    network: nn.Module, package: Path | str, *, facts: Mapping[str, str], device: torch.device
) -> CompiledNetwork | nn.Module:
    """Load what was compiled, or return the network itself where that isn't for these facts and this machine."""
    found: dict[str, str] = json.loads(Path(package).with_suffix(".json").read_text())
    expected = {**facts, **target(device)}
    if "failed" in found:
        problem = found["failed"]
    elif others := [key for key in expected if found.get(key) != expected[key]]:
        problem = f"it was compiled for another {', '.join(others)}"
    else:
        try:
            return CompiledNetwork(network, package)
        except RuntimeError as error:
            problem = (str(error).strip() or repr(error)).splitlines()[0]
    logger.warning(
        "the diffusion model runs uncompiled, and slower (delete %s to try again): %s", package, problem
    )
    return network
