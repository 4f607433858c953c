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

MOST_DIFFERENCE = {torch.float32: 1e-4, torch.float16: 3e-2}
"""How far a compiled network may be from the original, by its precision, before it is thrown away."""

_EXAMPLES = 4
_MOST_STATES = 1 << 16


def target(device: torch.device) -> dict[str, str]:
    """Say what compiled code depends on besides the network: torch, the system and the processor."""
    if device.type == "cuda":
        processor = torch.cuda.get_device_name(device)
    else:
        cpuinfo = Path("/proc/cpuinfo")
        text = cpuinfo.read_text() if cpuinfo.exists() else platform.processor()
        features = sorted(set(re.findall(r"^(?:model name|flags|Features)\s*:.*", text, re.MULTILINE)))
        processor = sha256("\n".join(features).encode()).hexdigest()[:16]
    return {
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor,
    }


def compile_network(
    network: nn.Module, package: Path | str, *, shape: tuple[int, ...], device: torch.device
) -> float:
    """Compile a network for states of ``shape`` ([C, H, W]) in batches of any size.

    Returns the largest difference to the original, on a few random states.
    """
    states = torch.randn(_EXAMPLES, *shape, device=device)
    timesteps = torch.linspace(0, 999, _EXAMPLES, device=device)
    batch = torch.export.Dim("batch", min=2, max=_MOST_STATES)
    with torch.no_grad():
        exported = torch.export.export(network, (states, timesteps), dynamic_shapes=({0: batch}, {0: batch}))
        torch._inductor.aoti_compile_and_package(
            exported, package_path=str(package), inductor_configs={"freezing": True}
        )
        compiled = CompiledNetwork(network, package)
        return float((compiled(states, timesteps) - network(states, timesteps)).abs().max())


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
        most = MOST_DIFFERENCE[network.dtype]  # type: ignore[index]
        if not difference <= most:
            raise ArithmeticError(f"its values differ by {difference:.1e} from the original's, more than {most}")
        logger.info("compiled; the largest difference to the original's values is %.1e", difference)
    except (RuntimeError, ArithmeticError) as error:
        reason = str(error).strip().splitlines()[0]
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
        if len(x_t) > 1:
            (evaluated,) = self._loader.boxed_run([x_t, timesteps])
        else:
            evaluated = self._network(x_t, timesteps)
        return evaluated


def load_package(
    network: nn.Module, package: Path | str, *, facts: Mapping[str, str], device: torch.device
) -> CompiledNetwork | nn.Module:
    """Load what was compiled, or return the network itself where that isn't for these facts and this machine."""
    description = Path(package).with_suffix(".json")
    found: dict[str, str] = json.loads(description.read_text())
    expected = {**facts, **target(device)}
    if "failed" in found:
        problem = f"it could not be compiled: {found['failed']}"
    elif found != expected:
        others = ", ".join(key for key in expected if found.get(key) != expected[key])
        problem = f"{package} was compiled for another {others}; delete it to have it compiled again"
    else:
        return CompiledNetwork(network, package)
    logger.warning("the diffusion model runs uncompiled, and slower: %s", problem)
    return network
