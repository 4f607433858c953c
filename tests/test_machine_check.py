"""What `snakemake check` tells of a machine: on the CPU, on a pretended GPU, and where something is wrong."""

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from scripts import check_machine
from studies import gpu_counts
from torch import Tensor

from adds.diffusion.noise import philox_in_torch
from adds.experiment import Experiment
from adds.machine.devices import CPU
from adds.machine.gpus import HIDDEN, VISIBLE
from adds.models.classifiers import timm
from adds.models.fast_unet import halve
from adds.models.weights import WEIGHTS, describe_model, save_weights
from adds.monitor import machine_check
from adds.monitor.estimate import estimate
from adds.monitor.machine_check import (
    Check,
    Finding,
    Job,
    Networks,
    Trial,
    Trials,
    compare_noise,
    compare_precision,
    memory_of_jobs,
    missing_for_compiling,
    share_out,
    state_bytes,
    table,
    try_batches,
    try_compiling,
)
from adds.monitor.speed import CHECK, checked_speed
from adds.registry import METHODS
from tests.conftest import TINY_UNET, random_unet
from tests.pretend_cuda import pretend_cuda
from tests.test_experiment import digits
from tests.workflow import command, copy_project, run_in

GPU = torch.device("cuda")
SETTINGS = {
    "diffusion": {"unet": TINY_UNET, "half_precision": True},
    "classifier": {"kind": "small", "classes": 10, "half_precision": True},
}


def networks(folder: Path, device: torch.device, **changes) -> Networks:
    return Networks({**SETTINGS, **changes}, {name: folder / name for name in SETTINGS}, device)


@pytest.fixture
def quick(own_slots, monkeypatch):  # noqa: ARG001
    monkeypatch.setattr(machine_check, "LARGER", (2,))


def checked(experiment: Experiment, folder: Path, capsys) -> tuple[bool, str]:
    machine = {**experiment.machine(), "threads": 1}
    passed = check_machine.main(experiment, machine, folder)
    return passed, re.sub(" +", " ", capsys.readouterr().out)


@pytest.mark.usefixtures("quick")
def test_a_cpu_is_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    experiment = digits()
    passed, told = checked(experiment, tmp_path, capsys)
    assert passed, told
    assert f"device {CPU.name}" in told
    assert "random words equal to the CPU's" in told
    assert "single, in both networks" in told
    assert "Ready for digits" in told
    found = json.loads((tmp_path / CHECK).read_text())
    seconds = estimate(experiment, speed=checked_speed(experiment, tmp_path / CHECK)).set_index("method")
    rates = found["evaluations_per_second"]
    assert seconds.loc["carlini", "seconds_per_sample"].iloc[0] == pytest.approx(
        sum(1 / rate for rate in rates.values())
    )


@pytest.mark.usefixtures("quick")
def test_a_gpu_is_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    experiment = digits(device="cuda", diffusion={"half_precision": True}, classifier={"half_precision": True})
    with pretend_cuda() as counts:
        passed, told = checked(experiment, tmp_path, capsys)
    assert passed, told
    assert "Pretended GPU, 16 GiB, compute capability 8.0" in told
    assert "random words" in told
    assert "of its largest value in single (random weights)" in told
    assert "of 16.0 GiB" in told
    assert counts.bytes["float16"]
    assert json.loads((tmp_path / CHECK).read_text())["device"] == "Pretended GPU"


@pytest.mark.usefixtures("quick")
def test_what_is_wrong_ends_in_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def others(counter: list[Tensor], key: list[Tensor]) -> list[Tensor]:
        return [word ^ 1 for word in philox_in_torch(counter, key)]

    monkeypatch.setattr(machine_check, "philox_in_torch", others)
    passed, told = checked(digits(), tmp_path, capsys)
    assert not passed
    assert "PROBLEM random words" in told
    assert "NOT READY for digits: random words: NOT the CPU's" in told


def test_normal_deviates_that_are_off_are_noticed(monkeypatch):
    box_muller, called = machine_check.box_muller, []

    def rough(words: list[Tensor]) -> Tensor:
        called.append(words)
        return box_muller(words) * (1 + 2e-6 * (len(called) == 1))

    assert [finding.verdict for finding in compare_noise(torch.device("cpu"))] == ["good", "good"]
    monkeypatch.setattr(machine_check, "box_muller", rough)
    words, normals = compare_noise(torch.device("cpu"))
    assert (words.verdict, normals.verdict) == ("good", "PROBLEM")


def leave_timm(folder: Path) -> dict:
    """Leave a small model of timm's, and return its settings."""
    description = timm.TimmDescription("resnet10t", 10, (32, 32), (0.5,) * 3, (0.5,) * 3)
    torch.manual_seed(0)
    folder.mkdir()
    save_weights(timm.TimmClassifier(description).network, folder / WEIGHTS)
    describe_model(folder, asdict(description))
    return {"kind": "timm", "name": "resnet10t", "classes": 10, "half_precision": True}


@pytest.mark.parametrize("there", [False, True], ids=["random weights", "weights"])
def test_half_precision_is_compared_on_the_networks_that_are_there(tmp_path, there):
    unet = {**TINY_UNET, "in_channels": 3, "image_size": 16}
    settings = {"kind": "timm", "name": "resnet10t", "classes": 10, "half_precision": True}
    if there:
        (tmp_path / "diffusion").mkdir()
        save_weights(random_unet(unet), tmp_path / "diffusion" / WEIGHTS)
        settings = leave_timm(tmp_path / "classifier")
    with pretend_cuda():
        known = networks(tmp_path, GPU, diffusion={"unet": unet, "half_precision": True}, classifier=settings)
        diffusion, classifier = compare_precision(known)
    assert diffusion.verdict == classifier.verdict == "good"
    assert ("random weights" in diffusion.found) != there
    assert ("random weights" in classifier.found) != there
    assert "of predictions" not in classifier.found, "with random weights hardly more than one class occurs"


def test_half_precision_that_is_broken_is_noticed(tmp_path, monkeypatch):
    def broken(network) -> None:
        halve(network)
        network.out[-1].weight.data *= 1.1

    monkeypatch.setattr("adds.models.unet.halve", broken)
    with pretend_cuda():
        (diffusion,) = compare_precision(networks(tmp_path, GPU))  # the small classifier has single precision only
    assert diffusion.verdict == "PROBLEM"


def test_a_classifier_that_is_broken_in_half_precision_is_noticed(tmp_path, monkeypatch):
    class Rounded(torch.nn.Module):
        """Other logits in half precision."""

        half_precision = False

        def forward(self, images: Tensor) -> Tensor:
            logits = images.flatten(1)[:, :10]
            return logits * self.of_half if self.half_precision else logits

    def verdict(of_half: Tensor) -> str:
        monkeypatch.setattr(Rounded, "of_half", of_half, raising=False)
        (found,) = [one for one in compare_precision(known) if one.what == "classifier in half precision"]
        return found.verdict

    known = networks(tmp_path, torch.device("cpu"))
    monkeypatch.setattr(Networks, "halved", lambda _self, name: name == "classifier")
    monkeypatch.setattr(Networks, "_random_classifier", Rounded())
    assert verdict(torch.ones(())) == "good"
    assert "100% of predictions on noise are the same" in compare_precision(known)[-1].found
    assert verdict(torch.full((), 1.2)) == "PROBLEM"


def holding(most: int):
    """A network whose batches fit up to a size."""

    def evaluate(states: Tensor) -> Tensor:
        if len(states) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return states

    return evaluate


@pytest.mark.parametrize(("most", "used", "largest"), [(100, 32, 64), (20, 16, 16), (3, 2, 2)])
def test_the_largest_batch_is_found(monkeypatch, most, used, largest):
    monkeypatch.setattr(machine_check, "_timed", lambda evaluate, rows: Trial(len(evaluate(rows)), 1.0, None))
    found = try_batches(holding(most), torch.zeros, 32, seconds=60)
    assert (found.used.size, found.tried[-1].size) == (used, largest)
    told = found.finding("diffusion")
    assert ("halve diffusion.batch_size = 32" in told.found) == (used < 32)
    assert f"{largest} fit, {2 * largest} don't" in told.found


@pytest.mark.parametrize(
    ("configured", "sizes"),
    [(50, [12, 25, 50, 100, 200, 400]), (3, [1, 3, 6, 12, 24]), (1, [1, 2, 4, 8]), (32, [8, 16, 32, 64, 128, 256])],
)
def test_the_configured_batch_is_tried_whatever_its_size(monkeypatch, configured, sizes):
    monkeypatch.setattr(machine_check, "_timed", lambda evaluate, rows: Trial(len(evaluate(rows)), 1.0, None))
    found = try_batches(holding(1000), torch.zeros, configured, seconds=60)
    assert [trial.size for trial in found.tried] == sizes
    assert found.used.size == configured
    assert found.finding("diffusion").found.endswith(f"{sizes[-1]} fit, larger ones weren't tried")


def test_where_nothing_fits_that_is_said():
    with pytest.raises(torch.OutOfMemoryError):
        try_batches(holding(0), torch.zeros, 8, seconds=60)


@pytest.mark.parametrize("most", [4, 8])
def test_other_errors_are_not_taken_for_want_of_memory(monkeypatch, most):
    """Above the configured size they end the trials, for jobs never get there."""
    monkeypatch.setattr(machine_check, "_timed", lambda evaluate, rows: Trial(len(evaluate(rows)), 1.0, None))

    def broken(rows: Tensor) -> Tensor:
        if len(rows) > most:
            raise RuntimeError("an illegal memory access was encountered\nand advice about it")
        return rows

    if most == 4:
        with pytest.raises(RuntimeError, match="illegal"):
            try_batches(broken, torch.zeros, 8, seconds=60)
    else:
        told = try_batches(broken, torch.zeros, 8, seconds=60).finding("diffusion")
        assert told.found.endswith("8 fit; of 16: an illegal memory access was encountered")
        assert told.verdict == "note"


HELD = [
    (name, votes, options)
    for name, record in METHODS.items()
    for votes in ((1, 2, 5) if record.takes_votes else (1,))
    for options in [{option: value} for option, values in record.options.items() for value in values] or [{}]
]


@pytest.mark.parametrize(("name", "votes", "options"), HELD)
def test_samples_hold_at_most_what_they_are_taken_to_hold(monkeypatch, name, votes, options):
    """And more than half of it, where there is a vote to hold."""
    monkeypatch.setattr(gpu_counts, "SIDE", 16)
    monkeypatch.setattr(gpu_counts, "ROWS", 32)
    counted, taken = gpu_counts.bytes_per_coordinate(name, votes, options), state_bytes(name, votes, options)
    assert counted <= taken
    assert not METHODS[name].takes_votes or counted > taken / 2


JOB = Job(samples=128, coordinates=3 * 256 * 256, state_bytes=200)
HELD_WEIGHTS = {"diffusion": 2 << 30, "classifier": 1 << 30}
TRIALS = {"classifier": Trials(32, [Trial(32, 1, 3 << 30)])}


@pytest.mark.parametrize(
    ("memory", "rate", "told"),
    [
        (24, 105.0, "samples"),
        (80, 200.0, "diffusion.batch_size = 64 with sampling.chunk_size = 256 would fit and be faster"),
        (24, 200.0, "samples"),  # it would not fit
        (15, 105.0, "lower sampling.chunk_size and diffusion.batch_size"),
    ],
)
def test_whole_jobs_are_measured_against_the_memory(memory, rate, told):
    tried = [Trial(16, 50, 5 << 30), Trial(32, 100, 9 << 30), Trial(64, rate, 17 << 30)]
    found = memory_of_jobs(TRIALS | {"diffusion": Trials(32, tried)}, HELD_WEIGHTS, JOB, memory << 30)
    assert found.found.startswith(f"a job needs about 14.7 of {memory}.0 GiB, of which 4.7 for samples")
    assert found.found.endswith(told)
    assert found.verdict == ("good" if told == "samples" else "note")


def test_samples_that_dont_fit_with_any_batch_are_a_problem():
    """Halving batches, as jobs do by themselves, doesn't help."""
    tried = Trials(32, [Trial(16, 50, 5 << 30), Trial(32, 100, 9 << 30)])
    found = memory_of_jobs(TRIALS | {"diffusion": tried}, HELD_WEIGHTS, JOB, 11 << 30)
    assert (found.verdict, found.found.endswith("lower sampling.chunk_size and diffusion.batch_size")) == (
        "PROBLEM",
        True,
    )


def test_the_classifier_may_need_most():
    tried = Trials(32, [Trial(32, 100, 9 << 30)])
    trials = {"diffusion": tried, "classifier": Trials(32, [Trial(32, 1, 20 << 30)])}
    assert memory_of_jobs(trials, HELD_WEIGHTS, JOB, 80 << 30).found.startswith("a job needs about 26.7 of")


def test_jobs_that_share_a_gpu_share_its_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_check, "LARGER", ())
    with pretend_cuda():
        check = Check(networks(tmp_path, GPU), {"diffusion": 2, "classifier": 2}, JOB, jobs_per_gpu=2)
        check.run(tmp_path, asked=False)
    assert "of 8.0 GiB" in check.findings[-1].found


def test_the_estimate_gets_the_speed_of_the_batch_that_jobs_use(tmp_path, monkeypatch):
    """And not that of a larger one, which is faster here."""
    monkeypatch.setattr(machine_check, "_timed", lambda _, rows: Trial(len(rows), float(len(rows)), None))
    check = Check(networks(tmp_path, torch.device("cpu")), {"diffusion": 4, "classifier": 8}, JOB)
    check.run(tmp_path, asked=False)
    assert check.rates == {"diffusion": 4.0, "classifier": 8.0}
    assert check.trials["diffusion"].fastest.size == 32


def two_jobs(monkeypatch, tmp_path, gpus: str, *, jobs_per_gpu: int = 1, patience: float = 60.0) -> Finding:
    monkeypatch.setenv(VISIBLE, gpus)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the locks are there
    return share_out(jobs_per_gpu, patience)


def test_two_jobs_get_two_gpus(monkeypatch, tmp_path):
    found = two_jobs(monkeypatch, tmp_path, "GPU-aa,GPU-bb")
    assert found.verdict == "good"
    assert sorted(found.found.split()[1::2]) == ["GPU-aa", "GPU-bb"]


def test_where_gpus_have_no_names_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_check, "visible_gpus", list)
    found = two_jobs(monkeypatch, tmp_path, "")
    assert (found.verdict, found.found) == ("note", HIDDEN)
    monkeypatch.delenv(VISIBLE)
    found = share_out(1)
    assert found.verdict == "note"
    assert "Run one job at a time" in found.found


def test_of_two_jobs_and_one_gpu_one_waits(monkeypatch, tmp_path):
    found = two_jobs(monkeypatch, tmp_path, "GPU-aa", patience=30.0)
    assert (found.verdict, found.found) == ("good", "one GPU: the second waits for the first")


def test_two_jobs_share_a_gpu_where_that_is_asked_for(monkeypatch, tmp_path):
    found = two_jobs(monkeypatch, tmp_path, "GPU-aa", jobs_per_gpu=2)
    assert (found.verdict, found.found) == ("good", "both on GPU GPU-aa, as jobs_per_gpu says")


SLOW_TO_END = "import os, sys, time; sys.stderr.write('no such driver\\n'); os.close(1); time.sleep(60)"


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("import sys; print('GPU-aa', flush=True); sys.stdin.read()", "both have GPU GPU-aa"),
        ("raise SystemExit('no such driver')", "a job that only takes a GPU failed: no such driver"),
        (SLOW_TO_END, "a job that only takes a GPU failed: no such driver"),
    ],
    ids=["both on one", "they fail", "they fail and are slow to end"],
)
def test_two_jobs_that_go_wrong_are_a_problem(monkeypatch, tmp_path, job, told):
    monkeypatch.setattr(machine_check, "_CLAIM", job)
    found = two_jobs(monkeypatch, tmp_path, "GPU-aa,GPU-bb")
    assert found.verdict == "PROBLEM"
    assert told in found.found


def test_what_compiling_lacks_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_check.shutil, "which", lambda _: None)
    monkeypatch.setattr(machine_check.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(machine_check, "_cuda_headers", lambda: False)
    monkeypatch.setattr(machine_check.sysconfig, "get_path", lambda _: str(tmp_path))
    assert missing_for_compiling(torch.device("cpu")) == ["a C++ compiler (g++)"]
    lacking = ["a C++ compiler", "Triton", "a C compiler", "Python's headers", "CUDA's headers"]
    found = missing_for_compiling(GPU)
    assert all(words.startswith(start) for words, start in zip(found, lacking, strict=True))
    (tmp_path / "Python.h").touch()
    assert len(missing_for_compiling(GPU)) == 4
    known, trials = networks(tmp_path, torch.device("cpu")), Trials(2, [Trial(2, 1.0, None)])
    finding, rate = try_compiling(known, tmp_path, trials, asked=False)
    assert (finding.verdict, rate) == ("good", None)
    assert (
        finding.found
        == "diffusion.compile doesn't ask for it, so it wasn't tried; this machine lacks a C++ compiler (g++)"
    )

    def no_compiler(*_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr("adds.models.compiled.compile_network", no_compiler)
    finding, rate = try_compiling(known, tmp_path, trials, asked=True)
    assert (finding.verdict, rate) == ("note", None)
    assert "fails, so jobs run uncompiled: no compiler; this machine lacks a C++ compiler" in finding.found


class Compiled:
    """A compiled network, which may have failed for large batches."""

    def __init__(self, failure: str = "") -> None:
        self.failure = failure

    def __call__(self, states: Tensor, _timesteps: Tensor) -> Tensor:
        return states


def test_what_compiling_brings_is_said(tmp_path, monkeypatch):
    """Against the batch that jobs use; and code that fails in batches of that size brings nothing."""
    known, trials = networks(tmp_path, torch.device("cpu")), Trials(8, [Trial(4, 50.0, None), Trial(8, 100.0, None)])
    monkeypatch.setattr(machine_check, "_timed", lambda evaluate, rows: Trial(len(evaluate(rows)), 250.0, None))
    monkeypatch.setattr(machine_check, "load_compiled", lambda *_, **__: Compiled())
    finding, rate = try_compiling(known, tmp_path, trials, asked=True)
    assert (finding.verdict, rate) == ("good", 250.0)
    assert finding.found == "works: 2.50 times as fast, 250 evaluations per second"
    monkeypatch.setattr(machine_check, "load_compiled", lambda *_, **__: Compiled("API call failed"))
    finding, rate = try_compiling(known, tmp_path, trials, asked=True)
    assert (finding.verdict, rate) == ("note", None)
    assert finding.found.startswith("fails, so jobs run uncompiled: API call failed; ")


def test_what_failed_to_compile_is_tried_again(tmp_path, monkeypatch):
    """By the check: something may have been mended since."""
    known, trials = networks(tmp_path, torch.device("cpu")), Trials(2, [Trial(2, 1.0, None)])
    tried = []

    def compile_network(_network, package, _what) -> None:
        tried.append(package)
        raise RuntimeError("no compiler")

    monkeypatch.setattr("adds.models.compiled.compile_network", compile_network)
    for _ in range(2):
        assert try_compiling(known, tmp_path, trials, asked=True)[0].verdict == "note"
    assert len(tried) == 2


def test_the_headers_of_cuda_are_looked_for_where_the_compiler_looks(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(tmp_path))
    assert not machine_check._cuda_headers()
    (tmp_path / "include").mkdir()
    (tmp_path / "include/cuda.h").touch()
    assert machine_check._cuda_headers()
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    assert not machine_check._cuda_headers()


def test_what_fails_is_a_finding_and_there_is_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine_check, "LARGER", ())

    def no_kernel(_: Networks) -> list[Finding]:
        raise RuntimeError("CUDA error: no kernel image is available\nand more")

    monkeypatch.setattr(machine_check, "compare_precision", no_kernel)
    passed, told = checked(digits(), tmp_path, capsys)
    assert not passed
    assert "PROBLEM precision CUDA error: no kernel image is available\n" in told
    assert "evaluations per second" in told, "the others are looked at all the same"
    passed, told = checked(digits(device="cuda"), tmp_path / "other", capsys)
    assert not passed
    assert "PROBLEM device" in told
    assert not (tmp_path / "other" / CHECK).exists()


def test_of_a_classifier_that_nothing_is_known_of_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_check, "LARGER", ())
    hub = {"kind": "timm", "name": "hf-hub:someone/else", "classes": 10, "half_precision": True}
    known = networks(tmp_path, torch.device("cpu"), classifier=hub)
    check = Check(known, {"diffusion": 2, "classifier": 2}, JOB)
    check.run(tmp_path, asked=False)
    assert check.findings[-1].found.startswith("not tried: its architecture is unknown")
    assert list(check.rates) == ["diffusion"]


def test_a_gpus_time_is_measured_to_its_end():
    """With a wait for every evaluation, and the memory that this batch needs and no earlier one."""
    with pretend_cuda() as counts:
        trial = machine_check._timed(lambda rows: rows * 2, torch.zeros(4, device=GPU))
        waited = sum(number for (why, _), number in counts.waits.items() if why == "torch.cuda.synchronize")
        assert trial.peak is not None
    assert waited >= 2
    assert counts.peaks_forgotten == 1


def test_a_table_is_aligned():
    lines = table([Finding("a", "b"), Finding("long", "c", "PROBLEM")]).splitlines()
    assert [line.index(found) for line, found in zip(lines, "bc", strict=True)] == [15, 15]


@pytest.mark.workflow
def test_the_check_runs_from_the_command_line(rerun):
    done = run_in(rerun, *command(rerun, "check"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ready for digits" in done.stdout
    assert "Certified accuracy" not in done.stdout, "no summary of a run that wasn't run"
    assert (rerun / "results/digits" / CHECK).exists()
    log = (rerun / "logs/digits/check.log").read_text()
    assert "good  classifier" in log
    assert "Ready for digits" in log


@pytest.mark.workflow
def test_without_a_gpu_the_check_ends_with_a_table_all_the_same(tmp_path):
    """Once, however often jobs that fail are to be tried again."""
    folder = copy_project(tmp_path)
    unseen = {**os.environ, VISIBLE: "-1"}
    done = run_in(folder, *command(folder, "check", "--retries", "2", device="auto"), environment=unseen)
    assert done.returncode != 0
    assert done.stdout.count("PROBLEM  device") == 1, done.stdout + done.stderr
    assert "NOT READY for digits: device: device is 'auto', but this machine has no GPU" in done.stdout
