"""Whether a machine is right for a run, and how fast it is: what `snakemake check` finds out in about two minutes.

It asks the device itself: that it draws the CPU's random numbers, that half precision is as good as single, which
batches fit and how fast they are, that compiling works, and that two jobs get two GPUs. Networks whose weights aren't
there yet have random ones.
"""

import importlib.util
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from adds.diffusion.batching import is_out_of_memory
from adds.diffusion.noise import box_muller, philox_in_numpy, philox_in_torch
from adds.machine.devices import Device
from adds.machine.gpus import visible_gpus
from adds.models.compiled import MOST_DIFFERENCE, CompiledNetwork, compiled_or_plain
from adds.models.pipeline import classifier_kind
from adds.models.unet import compilable, halved, load_unet, randomize, untrained_unet
from adds.models.weights import WEIGHTS
from adds.monitor.load import GIB

Verdict = Literal["good", "note", "PROBLEM"]
Evaluate = Callable[[Tensor], Tensor]

MOST_ULPS = 8
"""How far normal deviates of two processors may be apart, in units of float32's rounding."""

LEAST_EQUAL = 0.9
"""Which share of predictions must be the same in half precision and in single."""

SECONDS = {"diffusion": 40.0, "classifier": 15.0}
"""How long batches of each network are tried."""

LARGEST = 16
"""How many times the configured batch is tried at most."""

WORTHWHILE = 1.25
"""How much faster another batch must be to be worth a word."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and whether that is good."""

    what: str
    found: str
    verdict: Verdict = "good"


# The device


def describe_device(device: Device) -> Finding:
    """Name the device, its memory and its driver."""
    if device.kind == "cpu":
        return Finding("device", f"{device.name}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    memory = torch.cuda.mem_get_info()[1] / GIB
    capability = ".".join(map(str, torch.cuda.get_device_capability()))
    runtime = f"CUDA {torch.version.cuda}" if torch.version.hip is None else f"ROCm {torch.version.hip}"
    parts = (device.name, f"{memory:.0f} GiB", f"compute capability {capability}", _driver(), runtime)
    return Finding("device", f"{', '.join(filter(None, parts))}, torch {torch.__version__}")


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    told = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return f"driver {told[0]}" if told else ""


_CLAIM = """
import sys
from adds.machine.gpus import take_gpu
name = take_gpu()
import torch
print(torch.cuda.get_device_properties(0).uuid if torch.cuda.is_available() else name, flush=True)
sys.stdin.read()
"""


def share_out(patience: float = 60.0) -> Finding:
    """Start two jobs that take a GPU each, and see that no two have the same; nobody may hold one yet in this process.

    With one GPU the second job must wait for the first.
    """
    what, gpus = "two jobs at once", visible_gpus()
    if not gpus:
        return Finding(what, "no GPU of NVIDIA's to share out")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = [
        subprocess.Popen([sys.executable, "-c", _CLAIM], stdin=-1, stdout=-1, stderr=-3, text=True, env=environment)
        for _ in range(2)
    ]
    try:
        taken = list(_told(started, patience))
    finally:
        for job in started:
            job.kill()
            job.communicate()
    if len(taken) > len(set(taken)):
        return Finding(what, f"both have GPU {taken[0]}: jobs would share it", "PROBLEM")
    if len(taken) == 2:
        return Finding(what, f"GPUs {taken[0]} and {taken[1]}")
    if taken and len(gpus) == 1:
        return Finding(what, "one GPU: the second waits for the first")
    return Finding(what, f"{len(taken)} of 2 got a GPU of {len(gpus)}: are others using them?", "note")


def _told(jobs: Sequence["subprocess.Popen[str]"], patience: float) -> Iterator[str]:
    """Yield which GPU each job says that it has; once one has told, the other gets a tenth of the time more."""
    waiting = [job.stdout for job in jobs if job.stdout]
    ends = time.monotonic() + patience
    while waiting and (ready := select.select(waiting, [], [], max(0.0, ends - time.monotonic()))[0]):
        for stream in ready:
            waiting.remove(stream)
            if line := stream.readline().strip():
                yield line
        ends = min(ends, time.monotonic() + patience / 10)


# Random numbers


def compare_noise(device: torch.device, rows: int = 1 << 16) -> list[Finding]:
    """Draw the same random numbers on the device and on the CPU."""
    counter = [torch.arange(rows)[None], *(torch.tensor([[number]]) for number in (3, 1, 999))]
    key = [torch.tensor([[word]]) for word in (0x243F6A88, 0x85A308D3)]
    on_cpu = philox_in_numpy(*([word.numpy().view("uint64") for word in words] for words in (counter, key)))
    expected = [torch.from_numpy(word.view("int64")) for word in on_cpu]
    found = philox_in_torch([word.to(device) for word in counter], [word.to(device) for word in key])
    equal = all(torch.equal(one.cpu(), other) for one, other in zip(found, expected, strict=True))
    normals, others = box_muller(found[:3]).cpu().double(), box_muller(expected[:3]).double()
    ulps = float(((normals - others).abs() / others.abs().clamp(min=1)).max() * 2**23)
    return [
        Finding("random words", "equal to the CPU's" if equal else "NOT the CPU's", "good" if equal else "PROBLEM"),
        Finding("normal deviates", f"within {ulps:.1f} ulp of the CPU's", "good" if ulps <= MOST_ULPS else "PROBLEM"),
    ]


# Networks


@dataclass(frozen=True)
class Networks:
    """The configured networks on a device, from the ``folders`` of their weights where there are any."""

    settings: Mapping[str, Any]
    folders: Mapping[str, Path]
    device: torch.device

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a state: [C, H, W]."""
        unet = self.settings["diffusion"]["unet"]
        return (unet["in_channels"], unet["image_size"], unet["image_size"])

    def trained(self, name: str) -> bool:
        """Tell whether a network's weights are there."""
        return (self.folders[name] / WEIGHTS).exists()

    def halved(self, name: str) -> bool:
        """Tell whether a network computes in half precision here."""
        return halved(self.settings[name], self.device)

    def unet(self, *, half: bool) -> nn.Module:
        """Return the diffusion model in a precision."""
        unet = self.settings["diffusion"]["unet"]
        if self.trained("diffusion"):
            return load_unet(self.folders["diffusion"] / WEIGHTS, unet, device=self.device, half=half)
        return untrained_unet(unet, device=self.device, half=half)

    def classifier(self, *, half: bool) -> Evaluate | None:
        """Return the classifier in a precision; None where nothing is known of it yet."""
        settings = {**self.settings["classifier"], "half_precision": half}
        kind = classifier_kind(settings["kind"])
        if self.trained("classifier"):
            return kind.load(self.folders["classifier"], settings, self.device)
        network = kind.untrained(settings, half=half) if hasattr(kind, "untrained") else None
        if network is None:
            return None
        randomize(network)
        return network.eval().requires_grad_(False).to(self.device)  # type: ignore[no-any-return]

    def states(self, n: int) -> Tensor:
        """Return random states: N(0, I)."""
        return torch.randn(n, *self.shape, generator=torch.Generator().manual_seed(0)).to(self.device)


def at_timestep(network: Callable[[Tensor, Tensor], Tensor], timestep: float) -> Evaluate:
    """Return a diffusion model at one timestep."""
    return lambda states: network(states, torch.full((len(states),), timestep, device=states.device))


def compare_precision(networks: Networks, n: int = 16) -> list[Finding]:
    """Evaluate both networks in half precision and in single."""
    found = []
    states = networks.states(n)
    with torch.inference_mode():
        if networks.halved("diffusion"):
            values = {
                half: torch.cat([at_timestep(network, step)(states).float() for step in (50.0, 500.0, 950.0)])
                for half in (False, True)
                for network in [networks.unet(half=half)]
            }
            difference = float((values[True] - values[False]).abs().max() / values[False].abs().max())
            good = difference <= MOST_DIFFERENCE["cuda"]
            found.append(
                Finding(
                    "diffusion model in half precision",
                    f"within {difference:.1e} of its largest value in single"
                    + ("" if networks.trained("diffusion") else " (random weights)"),
                    "good" if good else "PROBLEM",
                )
            )
        if networks.halved("classifier") and (single := networks.classifier(half=False)):
            rounded = networks.classifier(half=True)
            assert rounded is not None
            images = states.clamp(-1, 1)
            equal = float((single(images).argmax(1) == rounded(images).argmax(1)).float().mean())
            trained = networks.trained("classifier")
            found.append(
                Finding(
                    "classifier in half precision",
                    f"{100 * equal:.0f}% of its predictions are those in single"
                    + ("" if trained else " (random weights)"),
                    "good" if equal >= LEAST_EQUAL else ("PROBLEM" if trained else "note"),
                )
            )
    return found or [Finding("precision", "single, in both networks")]


# Batches


@dataclass(frozen=True)
class Batch:
    """How fast batches of a size are, in evaluations per second, and the bytes that a GPU held at most."""

    size: int
    rate: float
    peak: int


@dataclass(frozen=True)
class Batches:
    """The batches of a network that were tried; ``full`` tells whether larger ones don't fit."""

    configured: int
    tried: list[Batch] = field(default_factory=list)
    full: bool = False

    @property
    def fastest(self) -> Batch:
        """The fastest batch."""
        return max(self.tried, key=lambda batch: batch.rate)

    @property
    def used(self) -> Batch:
        """The batch that jobs will use: the configured one, or the largest that fits."""
        return max((batch for batch in self.tried if batch.size <= self.configured), key=lambda batch: batch.size)

    def finding(self, name: str) -> Finding:
        """Say what was found of a network."""
        used, fastest, largest = self.used, self.fastest, self.tried[-1]
        peak = f" with {used.peak / GIB:.1f} GiB" if used.peak else ""
        parts = [
            f"{_rounded(used.rate)} evaluations per second in batches of {used.size}{peak}",
            f"fastest {_rounded(fastest.rate)} in {fastest.size}",
            f"{'largest that fits' if self.full else 'fits at least'} {largest.size}",
        ]
        key = f"{name}.batch_size"
        if used.size < self.configured:
            return Finding(name, f"{'; '.join(parts)}: {key} = {self.configured} doesn't fit", "note")
        if used.peak and fastest.rate > WORTHWHILE * used.rate:  # of a GPU; on CPUs compiling brings more
            advice = f"try {key} = {fastest.size}, with sampling.chunk_size = {4 * fastest.size}"
            return Finding(name, f"{'; '.join(parts)}: {advice}", "note")
        return Finding(name, "; ".join(parts))


def _rounded(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def try_batches(evaluate: Evaluate, states: Callable[[int], Tensor], configured: int, *, seconds: float) -> Batches:
    """Try batches from a quarter of the configured size on, always twice as large, until none fits or time is up."""
    found, full, started, size = [], False, time.monotonic(), max(1, configured // 4)
    while size <= LARGEST * configured:
        try:
            found.append(_timed(evaluate, states(size)))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            full = True
        if full and found:
            break
        if full:  # not even the first: go down
            full, size = False, size // 2
            if size == 0:
                raise MemoryError("not even a batch of one fits into the GPU's memory")
            continue
        size *= 2
        # The next one will take twice as long.
        if size > configured and 2 * (time.monotonic() - started) > seconds:
            break
    return Batches(configured, found, full)


def _timed(evaluate: Evaluate, states: Tensor, least: float = 0.5) -> Batch:
    """Evaluate a batch for half a second, or once; the first time isn't counted."""
    on_gpu = states.is_cuda

    def run() -> None:
        evaluate(states)
        if on_gpu:
            torch.cuda.synchronize()

    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with torch.inference_mode():
        run()
        rounds, started = 0, time.perf_counter()
        while rounds == 0 or time.perf_counter() - started < least:
            run()
            rounds += 1
        seconds = time.perf_counter() - started
    return Batch(len(states), rounds * len(states) / seconds, torch.cuda.max_memory_allocated() if on_gpu else 0)


# Compiling


def missing_for_compiling(device: torch.device) -> list[str]:
    """Return what compiling for a device needs and this machine lacks."""
    missing = []
    if not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++")))):
        missing.append("a C++ compiler (g++)")
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            missing.append("Triton")
        if not any(_cuda_headers()):
            missing.append("CUDA's headers (cuda.h: CUDA's toolkit, with CUDA_HOME set to it)")
    return missing


def _cuda_headers() -> Iterator[Path]:
    """Return where CUDA's headers are: of a toolkit, or of packages that came with torch."""
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    packages = Path(torch.__file__).parents[1] / "nvidia"
    yield from (path for home in filter(None, toolkits) if (path := Path(home) / "include/cuda.h").exists())
    yield from packages.glob("*/include/cuda.h")


def try_compiling(networks: Networks, folder: Path, batch: Batch, asked: bool) -> tuple[Finding, float | None]:
    """Compile the diffusion model where that is asked for, and compare its speed; or say what is missing.

    Returns the compiled network's evaluations per second too, where there is one.
    """
    what, missing = "compiling", missing_for_compiling(networks.device)
    if missing:
        text = f"this machine lacks {' and '.join(missing)}: jobs would run uncompiled"
        return Finding(what, text, "note" if asked else "good"), None
    if not asked:
        return Finding(what, "nothing is missing for it, and diffusion.compile doesn't ask for it"), None
    settings = networks.settings["diffusion"]
    network = networks.unet(half=networks.halved("diffusion"))
    compiled = compiled_or_plain(network, folder, compilable(settings, networks.device, batch.size))
    if not isinstance(compiled, CompiledNetwork):
        return Finding(what, f"fails, so jobs run uncompiled; see the log and {folder}", "note"), None
    rate = _timed(at_timestep(compiled, 500.0), networks.states(batch.size)).rate
    return Finding(what, f"works: {rate / batch.rate:.2f} times as fast, {_rounded(rate)} evaluations per second"), rate


# All of it


def check_networks(
    networks: Networks, batch_size: Mapping[str, int], compiled: Path, *, compile_: bool
) -> tuple[list[Finding], dict[str, float]]:
    """Try both networks; return what was found, and their evaluations per second as jobs will have them."""
    found, rates = compare_precision(networks), {}
    unet = networks.unet(half=networks.halved("diffusion"))
    batches = try_batches(
        at_timestep(unet, 500.0), networks.states, batch_size["diffusion"], seconds=SECONDS["diffusion"]
    )
    found.append(batches.finding("diffusion"))
    rates["diffusion"] = batches.used.rate
    del unet
    finding, rate = try_compiling(networks, compiled, batches.used, compile_)
    found.append(finding)
    rates["diffusion"] = rate or rates["diffusion"]
    classifier = networks.classifier(half=networks.halved("classifier"))
    if classifier is None:
        found.append(Finding("classifier", "nothing is known of it before it is there: not tried", "note"))
        return found, rates
    batches = try_batches(
        classifier, lambda n: networks.states(n).clamp(-1, 1), batch_size["classifier"], seconds=SECONDS["classifier"]
    )
    found.append(batches.finding("classifier"))
    rates["classifier"] = batches.used.rate
    return found, rates


def table(findings: Sequence[Finding]) -> str:
    """Write findings as aligned columns."""
    widths = [max(len(getattr(finding, name)) for finding in findings) for name in ("verdict", "what")]
    return "\n".join(f"{one.verdict:<{widths[0]}}  {one.what:<{widths[1]}}  {one.found}" for one in findings)
