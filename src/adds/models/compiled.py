"""The diffusion model compiled ahead of time: once for all jobs, which load it in milliseconds.

The compiler fuses what is between the convolutions. It needs to know the architecture only: jobs put the weights
in, so that it can work while a model is still being trained or downloaded. What it makes runs on processors like
the one it was made on and with the same torch: each kind has a package of its own, which the first job that needs it
makes. Where that fails, or the compiled network gives other values, jobs go on with the network as it is.

Compiled and plain networks differ by rounding, as two processors do. That is no part of a sample's identity: each
job compares the two on a few states before it uses the package, and a certificate stays true if some samples were
drawn with one and some with the other. Samples are then independent but not identically distributed, their mean
probability belongs to the classifier that picks one of the two networks at random, and the tail of such a sum is below
the binomial's that the bounds use (Hoeffding, 1956).
"""

import json
import logging
import platform
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn

from adds.machine.locks import exclusive

logger = logging.getLogger(__name__)

VERSION = 3
"""Raised when the same network would be compiled to something else: what was compiled before isn't used then."""

MOST_DIFFERENCE = {"cpu": 1e-4, "cuda": 3e-2}
"""How far a compiled network may be from the original, in parts of its largest value, before it is thrown away.

GPUs round to half precision, or to TF32 inside convolutions.
"""

_EXAMPLES = 2
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


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its name where it says nothing."""
    return (str(error).strip() or repr(error)).splitlines()[0]


def _examples(what: "Compilable") -> tuple[Tensor, Tensor]:
    states = torch.randn(_EXAMPLES, *what.shape, generator=torch.Generator().manual_seed(0)).to(what.device)
    return states, torch.linspace(0, 999, _EXAMPLES, device=what.device)


@dataclass(frozen=True)
class Compilable:
    """What a network is to the compiler: the ``facts`` that hold of it, and where and on what it is evaluated.

    That is batches of at most ``most`` states of ``shape`` ([C, H, W]).
    """

    facts: Mapping[str, str]
    shape: tuple[int, ...]
    most: int
    device: torch.device


def compile_network(network: nn.Module, package: Path | str, what: Compilable) -> None:
    """Compile a network, whatever its weights, for batches of 2 states or more.

    Those are the sizes that occur: the configured one, and what halving it gives. If larger ones could, the compiler
    would have to count a GPU's tensors with 64 bits, which is slower.
    """
    batch = torch.export.Dim("batch", min=2, max=max(what.most, 2 * _EXAMPLES))
    settings = {**_SETTINGS, "compile_threads": torch.get_num_threads()}
    with torch.no_grad(), warnings.catch_warnings():
        for of_torch_about_itself in (FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", of_torch_about_itself)
        exported = torch.export.export(network, _examples(what), dynamic_shapes=({0: batch}, {0: batch}))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=settings)


def check_values(compiled: "CompiledNetwork", network: nn.Module, what: Compilable) -> float:
    """Return the largest difference to the original on a few states, in parts of its largest value.

    One that is too large is an error, and so is compiled code that fails.
    """
    with torch.inference_mode():
        examples = _examples(what)
        expected = network(*examples)
        difference = float((compiled(*examples) - expected).abs().max() / expected.abs().max())
    if compiled.failure:
        raise RuntimeError(compiled.failure)
    most = MOST_DIFFERENCE[what.device.type]
    if not difference <= most:
        raise ArithmeticError(f"its values differ by {difference:.1e} from the original's, more than {most}")
    return difference


def _described(what: Compilable) -> dict[str, str]:
    return {**what.facts, "most": str(what.most), "version": str(VERSION), **target(what.device)}


def _place(folder: Path, described: Mapping[str, str]) -> Path:
    return folder / sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16] / "compiled.pt2"


def package_for(network: nn.Module, folder: Path, what: Compilable, *, again: bool = False) -> Path:
    """Return the package for a network and this processor; make it where it isn't there.

    The network's weights don't matter, as long as they give values that can be compared. Making it needs a C++
    compiler, and for GPUs Triton and CUDA's headers besides. Nothing but speed depends on it: where it fails the
    package is left empty, and its description says why. What has failed isn't tried again unless ``again`` asks for it.
    """
    described = _described(what)
    package = _place(folder, described)
    with exclusive(package.with_name("lock"), "the diffusion model is being compiled"):
        if not package.with_suffix(".json").exists() or (again and _why_it_failed(package)):
            failed = _try_to_compile(network, package, what)
            text = json.dumps({**described, **({"failed": failed} if failed else {})}, indent=2)
            package.with_suffix(".json").write_text(text + "\n")
    return package


def _why_it_failed(package: Path) -> str | None:
    found: str | None = json.loads(package.with_suffix(".json").read_text()).get("failed")
    return found


def _try_to_compile(network: nn.Module, package: Path, what: Compilable) -> str | None:
    """Compile and compare; return why it failed, or None."""
    try:
        compile_network(network, package, what)
        difference = check_values(CompiledNetwork(network, package), network, what)
    except Exception as error:  # whatever a compiler may say: without it jobs are slower, not wrong
        logger.warning("the diffusion model can't be compiled here, jobs run slower: %s", first_line(error))
        logger.debug("what the compiler said", exc_info=True)
        package.write_bytes(b"")
        return first_line(error)
    logger.info("compiled; the largest difference to the original's values is %.1e", difference)
    return None


class CompiledNetwork:
    """The compiled network with the original's weights; a single state, for which it isn't made, goes to that."""

    def __init__(self, network: nn.Module, package: Path | str) -> None:
        self._network = network
        self.failure = ""
        """What compiled code said when it failed and the network itself didn't; it isn't asked again."""
        # What torch._inductor.aoti_load_package wraps, without the two seconds that importing the compiler takes.
        # For one thread: else a GPU's every evaluation would first wait for the one before.
        self._loader = torch._C._aoti.AOTIModelPackageLoader(str(package), "model", True, 1, -1)
        weights = network.state_dict()
        missing = [name for name in self._loader.get_constant_fqns() if name not in weights]
        if missing:
            raise RuntimeError(f"it was compiled from a network with other weights: {', '.join(missing[:5])}")
        self._loader.load_constants(weights, use_inactive=False, check_full_update=True, user_managed=True)

    def __call__(self, x_t: Tensor, timesteps: Tensor) -> Tensor:
        """Evaluate the network; once it has failed compiled and not as it is, always as it is."""
        evaluated: Tensor
        failed = ""
        if len(x_t) > 1 and not self.failure:
            try:
                (evaluated,) = self._loader.boxed_run([x_t, timesteps])
                return evaluated
            except RuntimeError as error:
                if not x_t.is_cuda:
                    raise
                # Compiled code tells of every failure only where it was. What it is, the network itself will say.
                failed = first_line(error)
        evaluated = self._network(x_t, timesteps)
        if failed:
            logger.warning("the compiled network failed, and the job goes on uncompiled: %s", failed)
            self.failure = failed
        return evaluated


def load_compiled(network: nn.Module, folder: Path, what: Compilable, *, again: bool = False) -> CompiledNetwork:
    """Return the network compiled; an error says why it can't be, or that compiled values aren't its own."""
    package = package_for(network, folder, what, again=again)
    if why := _why_it_failed(package):
        raise RuntimeError(why)
    compiled = CompiledNetwork(network, package)
    check_values(compiled, network, what)
    return compiled


def compiled_or_plain(network: nn.Module, folder: Path, what: Compilable) -> CompiledNetwork | nn.Module:
    """Return the network compiled, or as it is where that can't be."""
    try:
        return load_compiled(network, folder, what)
    except (RuntimeError, ArithmeticError) as error:
        where = _place(folder, _described(what)).parent
        logger.warning(
            "the diffusion model runs uncompiled, and slower (delete %s to try again): %s", where, first_line(error)
        )
        return network
