"""Whether a machine is right for a run, and how fast it is: what `snakemake check` finds out in a few minutes.

It asks the device itself: that it draws the CPU's random numbers, that half precision is as good as single, which
batches fit and how fast they are, that compiling works, and that two jobs get two GPUs. Networks whose weights aren't
there yet have random ones. What fails is a finding too: there is always a table in the end.
"""

import copy
import importlib.util
import logging
import os
import select
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from adds.diffusion.batching import Batches, is_out_of_memory
from adds.diffusion.noise import box_muller, philox_in_numpy, philox_in_torch
from adds.experiment import FULL_BATCHES
from adds.machine.devices import Device
from adds.machine.gpus import no_names, visible_gpus
from adds.methods.majority import always_cast
from adds.models.compiled import MOST_DIFFERENCE, first_line, load_compiled
from adds.models.pipeline import classifier_kind, untrained_classifier
from adds.models.unet import build_unet, compilable, halved, load_unet, randomize, ready
from adds.models.weights import WEIGHTS
from adds.monitor.demand import GIB
from adds.registry import METHODS

logger = logging.getLogger(__name__)

Verdict = Literal["good", "note", "PROBLEM"]
Evaluate = Callable[[Tensor], Tensor]

MOST_ULPS = 8
"""How far normal deviates of two processors may be apart, in units of float32's rounding (at 1 for smaller ones)."""

LEAST_EQUAL = 0.9
"""Which share of a classifier's predictions should be the same in half precision and in single."""

LEAST_CLASSES = 5
"""How many classes must occur for that to say anything: with random weights it may be one."""

SECONDS = {"diffusion": 40.0, "classifier": 15.0}
"""How long batches of each network are tried."""

LARGER = (2, 4, 8)
"""How many times the configured batch is tried too."""

WORTHWHILE = 1.25
"""How much faster another batch must be to be worth a word."""

OF_SAMPLE, OF_VOTE, OF_GUIDED_VOTE = 42, 52, 146
"""Bytes that a sample holds per coordinate besides the networks, and each vote that is cast at once with others.

At most: a test compares them with what `studies.gpu_counts` counts.
"""

IN_RESERVE = 0.1
"""The share of a GPU's memory that its libraries take for themselves."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and whether that is good."""

    what: str
    found: str
    verdict: Verdict = "good"


def attempted(what: str, look: Callable[[], Sequence[Finding]]) -> list[Finding]:
    """Return what a look finds, or that it failed."""
    try:
        return list(look())
    except Exception as error:  # whatever a machine may say: the check is there to tell
        logger.debug("%s failed", what, exc_info=not isinstance(error, ValueError))
        return [Finding(what, first_line(error), "PROBLEM")]


# The device


TWO_JOBS = "two jobs at once"


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
import adds.models.pipeline, adds.sampling.sampler  # as jobs do before they have a GPU
from adds.machine.gpus import take_gpu
name = take_gpu(jobs_per_gpu=int(sys.argv[1]))
import torch
named = name.startswith("MIG-") or not torch.cuda.is_available()
print(name if named else torch.cuda.get_device_properties(0).uuid, flush=True)
sys.stdin.read()
"""


def share_out(jobs_per_gpu: int, patience: float = 60.0) -> Finding:
    """Start two jobs that take a GPU each, and see what they have; nobody may hold one yet in this process.

    Two GPUs must be two, and one must not be shared unless that is configured: then the second job waits.
    """
    what, gpus = TWO_JOBS, visible_gpus()
    if not gpus:
        return Finding(what, no_names(), "note")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIM, str(jobs_per_gpu)],
            stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        told = dict(_told(started, patience))
    finally:
        for job in started:
            job.kill()
        said = [job.communicate()[1].strip().splitlines() for job in started]
    taken = [gpu for gpu in told.values() if gpu]
    if len(taken) < len(told):
        last = next((said[job][-1] for job, gpu in told.items() if not gpu and said[job]), "without a word")
        return Finding(what, f"a job that only takes a GPU failed: {last}", "PROBLEM")
    if len(taken) == 2 and taken[0] != taken[1]:
        return Finding(what, f"GPUs {taken[0]} and {taken[1]}")
    if len(taken) == 2 and len(gpus) == 1 and jobs_per_gpu > 1:
        return Finding(what, f"both on GPU {taken[0]}, as jobs_per_gpu says")
    if len(taken) == 2:
        return Finding(what, f"both have GPU {taken[0]}: jobs would share it", "PROBLEM")
    if taken and len(gpus) == 1:
        return Finding(what, "one GPU: the second waits for the first")
    return Finding(what, f"{len(taken)} of 2 got one of {len(gpus)} GPUs in time: are others using them?", "note")


def _told(jobs: Sequence["subprocess.Popen[str]"], patience: float) -> Iterator[tuple[int, str]]:
    """Yield which GPU each job, by its number, says that it has; nothing is what one says that ended before.

    Once one has told, the other gets a tenth of the time more.
    """
    waiting = {job.stdout: number for number, job in enumerate(jobs) if job.stdout}
    ends = time.monotonic() + patience
    while waiting and (ready_ := select.select([*waiting], [], [], max(0.0, ends - time.monotonic()))[0]):
        for stream in ready_:
            yield waiting.pop(stream), stream.readline().strip()
        ends = min(ends, time.monotonic() + patience / 10)


# Random numbers


def compare_noise(device: torch.device, rows: int = 1 << 16) -> list[Finding]:
    """Draw the same random numbers on the device and on the CPU."""
    counter = [torch.arange(rows)[None], *(torch.tensor([[number]]) for number in (3, 1, 999))]
    key = [torch.tensor([[word]]) for word in (0x243F6A88, 0x85A308D3)]
    on_cpu = philox_in_numpy(*([word.numpy().view(np.uint64) for word in words] for words in (counter, key)))
    expected = [torch.from_numpy(word.view(np.int64)) for word in on_cpu]
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

    def weights(self, name: str) -> str:
        """Say so, where they aren't."""
        return "" if self.trained(name) else " (random weights)"

    def halved(self, name: str) -> bool:
        """Tell whether half precision is asked for here."""
        return halved(self.settings[name], self.device)

    @cached_property
    def _random_unet(self) -> nn.Module:
        network = build_unet(self.settings["diffusion"]["unet"])
        randomize(network)
        return network

    @cached_property
    def _random_classifier(self) -> nn.Module | None:
        network = untrained_classifier(self.settings["classifier"])
        if network is not None:
            randomize(network)
        return network

    def unet(self, *, half: bool) -> nn.Module:
        """Return the diffusion model in a precision."""
        if self.trained("diffusion"):
            unet = self.settings["diffusion"]["unet"]
            return load_unet(self.folders["diffusion"] / WEIGHTS, unet, device=self.device, half=half)
        return ready(copy.deepcopy(self._random_unet), device=self.device, half=half)

    def classifier(self, *, half: bool) -> Evaluate | None:
        """Return the classifier, in half precision where it can; None where its architecture is unknown yet."""
        settings = {**self.settings["classifier"], "half_precision": half}
        if self.trained("classifier"):
            return classifier_kind(settings["kind"]).load(self.folders["classifier"], settings, self.device)
        if self._random_classifier is None:
            return None
        network = copy.deepcopy(self._random_classifier).eval().requires_grad_(False).to(self.device)
        if hasattr(network, "half_precision"):
            network.half_precision = half  # type: ignore[assignment]
        return network

    def states(self, n: int) -> Tensor:
        """Return random states: N(0, I)."""
        return torch.randn(n, *self.shape, generator=torch.Generator().manual_seed(0)).to(self.device)

    def images(self, n: int) -> Tensor:
        """Return random images, in [-1, 1]."""
        return self.states(n).clamp(-1, 1)


def at_timestep(network: Callable[[Tensor, Tensor], Tensor], timestep: float) -> Evaluate:
    """Return a diffusion model at one timestep."""
    return lambda states: network(states, torch.full((len(states),), timestep, device=states.device))


def compare_precision(networks: Networks, states: int = 16, images: int = 64) -> list[Finding]:
    """Evaluate the networks that compute in half precision in single too, a few states at a time."""
    found = []
    if networks.halved("diffusion"):
        found.append(_compare_unets(networks, states))
    classifier = networks.classifier(half=True) if networks.halved("classifier") else None
    if classifier is not None and getattr(classifier, "half_precision", False):
        found.append(_compare_classifiers(networks, classifier, images))
    told = "single, in both networks"
    if networks.device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        told += "; CUDA's convolutions round to TF32 where the GPU has it"
    return found or [Finding("precision", told)]


def _values(evaluate: Evaluate, rows: Tensor) -> Tensor:
    return Batches(4).apply(lambda batch: evaluate(batch).float(), rows).cpu()


def _difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference, in parts of the largest value."""
    return float((found - expected).abs().max() / expected.abs().max())


def _compare_unets(networks: Networks, n: int) -> Finding:
    def values(*, half: bool) -> Tensor:
        network = networks.unet(half=half)
        return torch.cat([_values(at_timestep(network, step), networks.states(n)) for step in (50.0, 500.0, 950.0)])

    with _without_tf32():
        exact = values(half=False)
    difference = _difference(values(half=True), exact)
    told = f"within {difference:.1e} of its largest value in single{networks.weights('diffusion')}"
    good = difference <= MOST_DIFFERENCE["cuda"]
    return Finding("diffusion model in half precision", told, "good" if good else "PROBLEM")


def _compare_classifiers(networks: Networks, rounded: Evaluate, n: int) -> Finding:
    single = networks.classifier(half=False)
    assert single is not None
    logits = _values(rounded, networks.images(n))
    with _without_tf32():
        expected = _values(single, networks.images(n))
    difference, predicted = _difference(logits, expected), expected.argmax(1)
    equal, classes = float((logits.argmax(1) == predicted).float().mean()), len(predicted.unique())
    told = f"within {difference:.1e} of its largest logit in single"
    told += f", {100 * equal:.0f}% of predictions on noise are the same" if classes >= LEAST_CLASSES else ""
    good: Verdict = "good" if equal >= LEAST_EQUAL or classes < LEAST_CLASSES else "note"
    verdict = good if difference <= MOST_DIFFERENCE["cuda"] else "PROBLEM"
    return Finding("classifier in half precision", told + networks.weights("classifier"), verdict)


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Let convolutions and products be computed in single precision throughout."""
    settings: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [found.allow_tf32 for found in settings]
    try:
        for found in settings:
            found.allow_tf32 = False
        yield
    finally:
        for found, allowed in zip(settings, before, strict=True):
            found.allow_tf32 = allowed


# Batches


@dataclass(frozen=True)
class Trial:
    """How fast batches of a size are, in evaluations per second, and the bytes that a GPU held at most."""

    size: int
    rate: float
    peak: int | None


@dataclass(frozen=True)
class Trials:
    """The batches of a network that were tried, why larger ones weren't, and whether they failed in another way."""

    configured: int
    tried: list[Trial] = field(default_factory=list)
    ended: str = ", larger ones weren't tried"
    failed: bool = False

    @property
    def fastest(self) -> Trial:
        """The fastest batch."""
        return max(self.tried, key=lambda trial: trial.rate)

    @property
    def used(self) -> Trial:
        """The batch that jobs will use: the configured one, or the largest that fits."""
        return max((trial for trial in self.tried if trial.size <= self.configured), key=lambda trial: trial.size)

    def finding(self, name: str) -> Finding:
        """Say what was found of a network."""
        used, fastest, largest = self.used, self.fastest, self.tried[-1]
        parts = [
            f"{_rounded(used.rate)} evaluations per second in batches of {used.size}",
            f"fastest {_rounded(fastest.rate)} in {fastest.size}",
            f"{largest.size} fit{self.ended}",
        ]
        if used.size < self.configured:
            return Finding(name, f"{'; '.join(parts)}: jobs will halve {name}.batch_size = {self.configured}", "note")
        return Finding(name, "; ".join(parts), "note" if self.failed else "good")


def _rounded(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def try_batches(evaluate: Evaluate, rows: Callable[[int], Tensor], configured: int, *, seconds: float) -> Trials:
    """Try what halving the configured batch twice gives, that batch, and larger ones until one fails or time is up."""
    started = time.monotonic()
    first, *others = dict.fromkeys(
        [max(1, configured >> 2), max(1, configured >> 1), configured, *(times * configured for times in LARGER)]
    )
    tried = [_halved_until_it_fits(evaluate, rows, first)]
    if tried[0].size < first:
        return Trials(configured, tried, f", {2 * tried[0].size} don't")
    for size in others:
        # It will take twice as long as the one before.
        if size > configured and 2 * (time.monotonic() - started) > seconds:
            break
        try:
            tried.append(_timed(evaluate, rows(size)))
        except RuntimeError as error:
            too_large = is_out_of_memory(error)
            if size <= configured and not too_large:
                raise
            ended = f", {size} don't" if too_large else f"; of {size}: {first_line(error)}"
            return Trials(configured, tried, ended, failed=not too_large)
    return Trials(configured, tried)


def _halved_until_it_fits(evaluate: Evaluate, rows: Callable[[int], Tensor], size: int) -> Trial:
    while True:
        try:
            return _timed(evaluate, rows(size))
        except RuntimeError as error:
            if size == 1 or not is_out_of_memory(error):
                raise
        size //= 2


def _timed(evaluate: Evaluate, rows: Tensor, least: float = 0.5) -> Trial:
    """Evaluate a batch for half a second, or once; the first time isn't counted."""
    on_gpu = rows.is_cuda

    def run() -> None:
        evaluate(rows)
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
    return Trial(len(rows), rounds * len(rows) / seconds, torch.cuda.max_memory_allocated() if on_gpu else None)


# Memory


def state_bytes(method: str, votes: int, options: Mapping[str, str]) -> int:
    """Return the bytes that a sample of a method holds at most per coordinate, besides the networks."""
    if "bridges" in options:
        return OF_SAMPLE + OF_GUIDED_VOTE * int(options["bridges"])
    of_vote = OF_GUIDED_VOTE if METHODS[method].votes_are == "guided votes" else OF_VOTE
    return OF_SAMPLE + of_vote * always_cast(votes)


@dataclass(frozen=True)
class Job:
    """What a job holds besides its networks: so many samples at once, of so many coordinates of so many bytes."""

    samples: int
    coordinates: int
    state_bytes: int

    def bytes(self, scale: float = 1.0) -> float:
        """Return what its samples hold, or so many times as many samples."""
        return scale * self.samples * self.coordinates * self.state_bytes


def memory_of_jobs(trials: Mapping[str, Trials], weights: Mapping[str, int], job: Job, memory: float) -> Finding:
    """Say whether a whole job fits into its share of a GPU, and whether it would with a batch that is faster.

    One network computes at a time, and of the other the ``weights`` are there. Smaller batches, to which a job that
    runs out of memory goes over by itself, help the networks and not the samples.
    """
    used, fastest = trials["diffusion"].used, trials["diffusion"].fastest
    limit = (1 - IN_RESERVE) * memory

    def need(trial: Trial, scale: float) -> float:
        of_diffusion = (trial.peak or 0) + weights["classifier"]
        of_classifier = (trials["classifier"].used.peak or 0) + weights["diffusion"]
        return max(of_diffusion, of_classifier) + job.bytes(scale)

    samples = f"{job.bytes() / GIB:.1f} for samples"
    told = f"a job needs about {need(used, 1) / GIB:.1f} of {memory / GIB:.1f} GiB, of which {samples}"
    if need(used, 1) > limit:
        helps = need(trials["diffusion"].tried[0], 1) <= limit
        advice = "lower sampling.chunk_size and diffusion.batch_size"
        return Finding("memory", f"{told}: {advice}", "note" if helps else "PROBLEM")
    if fastest.rate > WORTHWHILE * used.rate and need(fastest, fastest.size / used.size) <= limit:
        advice = f"diffusion.batch_size = {fastest.size} with sampling.chunk_size = {FULL_BATCHES * fastest.size}"
        return Finding("memory", f"{told}; {advice} would fit and be faster", "note")
    return Finding("memory", told)


# Compiling


def missing_for_compiling(device: torch.device) -> list[str]:
    """Return what compiling for a device needs and this machine lacks."""
    missing = []
    if not shutil.which(os.environ.get("CXX", "g++")):
        missing.append("a C++ compiler (g++)")
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            missing.append("Triton")
        if not any(map(shutil.which, (os.environ.get("CC", "gcc"), "clang"))):
            missing.append("a C compiler for Triton (gcc)")
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            missing.append("Python's headers for Triton (Python.h, in Debian's python3-dev)")
        if torch.version.hip is None and not _cuda_headers():
            missing.append("CUDA's headers (cuda.h of CUDA's toolkit, with CUDA_HOME set to it)")
    return missing


def _cuda_headers() -> bool:
    """Tell whether CUDA's headers are where torch's compiler looks for them."""
    from torch.utils.cpp_extension import CUDA_HOME

    return CUDA_HOME is not None and (Path(CUDA_HOME) / "include/cuda.h").exists()


def try_compiling(networks: Networks, folder: Path, trials: Trials, *, asked: bool) -> tuple[Finding, float | None]:
    """Compile the diffusion model where that is asked for, and compare its speed; or say what would be missing.

    Returns the compiled network's evaluations per second too, where there is one.
    """
    missing = missing_for_compiling(networks.device)
    lacks = f"this machine lacks {' and '.join(missing)}" if missing else "nothing that was looked for is missing"
    if not asked:
        return Finding("compiling", f"diffusion.compile doesn't ask for it, so it wasn't tried; {lacks}"), None
    settings, used = networks.settings["diffusion"], trials.used
    network = networks.unet(half=networks.halved("diffusion"))
    try:
        compiled = load_compiled(network, folder, compilable(settings, networks.device, trials.configured), again=True)
        rate = _timed(at_timestep(compiled, 500.0), networks.states(used.size)).rate
        failed = compiled.failure
    except (RuntimeError, ArithmeticError) as error:
        failed = first_line(error)
    if failed:
        return Finding("compiling", f"fails, so jobs run uncompiled: {failed}; {lacks}; more in the log", "note"), None
    told = f"works: {rate / used.rate:.2f} times as fast, {_rounded(rate)} evaluations per second"
    return Finding("compiling", told), rate


# All of it


@dataclass
class Check:
    """Looks at the networks, one after the other, and keeps what it found."""

    networks: Networks
    batch_size: Mapping[str, int]
    job: Job
    jobs_per_gpu: int = 1
    findings: list[Finding] = field(default_factory=list)
    trials: dict[str, Trials] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    """Bytes of the networks' weights."""
    rates: dict[str, float] = field(default_factory=dict)
    """Evaluations per second, as jobs will have them."""

    def run(self, compiled: Path, *, asked: bool) -> None:
        """Look at everything; what fails is a finding."""
        self.findings += attempted("precision", lambda: compare_precision(self.networks))
        self.findings += attempted("diffusion", self._diffusion)
        if "diffusion" in self.trials:
            self.findings += attempted("compiling", lambda: self._compiling(compiled, asked=asked))
        self.findings += attempted("classifier", self._classifier)

    def _diffusion(self) -> list[Finding]:
        unet = self.networks.unet(half=self.networks.halved("diffusion"))
        self.weights["diffusion"] = _bytes_of(unet)
        return [self._tried("diffusion", at_timestep(unet, 500.0), self.networks.states)]

    def _compiling(self, folder: Path, *, asked: bool) -> list[Finding]:
        finding, rate = try_compiling(self.networks, folder, self.trials["diffusion"], asked=asked)
        self.rates["diffusion"] = rate or self.rates["diffusion"]
        return [finding]

    def _classifier(self) -> list[Finding]:
        classifier = self.networks.classifier(half=self.networks.halved("classifier"))
        if classifier is None:
            return [Finding("classifier", "not tried: its architecture is unknown until it has been obtained", "note")]
        self.weights["classifier"] = _bytes_of(classifier)
        found = [self._tried("classifier", classifier, self.networks.images)]
        if self.networks.device.type == "cuda" and "diffusion" in self.trials:
            memory = torch.cuda.mem_get_info()[1] / self.jobs_per_gpu
            found.append(memory_of_jobs(self.trials, self.weights, self.job, memory))
        return found

    def _tried(self, name: str, evaluate: Evaluate, rows: Callable[[int], Tensor]) -> Finding:
        self.trials[name] = try_batches(evaluate, rows, self.batch_size[name], seconds=SECONDS[name])
        self.rates[name] = self.trials[name].used.rate
        return self.trials[name].finding(name)


def _bytes_of(network: object) -> int:
    held = [*network.parameters(), *network.buffers()] if isinstance(network, nn.Module) else []
    return sum(tensor.nbytes for tensor in held)


def table(findings: Sequence[Finding]) -> str:
    """Write findings as aligned columns."""
    widths = [max(len(getattr(finding, name)) for finding in findings) for name in ("verdict", "what")]
    return "\n".join(f"{one.verdict:<{widths[0]}}  {one.what:<{widths[1]}}  {one.found}" for one in findings)
