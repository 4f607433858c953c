"""What `snakemake check` tells of a machine: on the CPU, on a pretended GPU, and where something is wrong."""

import json
from pathlib import Path

import pytest
import torch
from scripts import check_machine
from torch import Tensor

from adds.diffusion.noise import philox_in_torch
from adds.experiment import Experiment
from adds.machine.devices import CPU
from adds.machine.gpus import VISIBLE
from adds.models.fast_unet import halve
from adds.models.weights import WEIGHTS, save_weights
from adds.monitor import machine_check
from adds.monitor.estimate import estimate
from adds.monitor.machine_check import (
    Batch,
    Batches,
    Networks,
    check_networks,
    compare_noise,
    compare_precision,
    missing_for_compiling,
    share_out,
    table,
    try_batches,
    try_compiling,
)
from adds.monitor.speed import CHECK, checked_speed
from tests.conftest import TINY_UNET, random_unet
from tests.pretend_cuda import pretend_cuda
from tests.test_experiment import digits
from tests.workflow import command, run_in

GPU = torch.device("cuda")
SETTINGS = {
    "diffusion": {"unet": TINY_UNET, "half_precision": True},
    "classifier": {"kind": "small", "classes": 10, "half_precision": True},
}


def networks(folder: Path, device: torch.device, **changes) -> Networks:
    return Networks({**SETTINGS, **changes}, {name: folder / name for name in SETTINGS}, device)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(machine_check, "LARGEST", 2)


def checked(experiment: Experiment, folder: Path, capsys) -> tuple[bool, str]:
    machine = {**experiment.machine(), "threads": 1}
    passed = check_machine.main(experiment, machine, folder)
    return passed, capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_a_cpu_is_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    experiment = digits()
    passed, told = checked(experiment, tmp_path, capsys)
    assert passed, told
    assert f"device            {CPU.name}" in told
    assert "random words      equal to the CPU's" in told
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
    assert "PROBLEM  random words" in told
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


@pytest.mark.parametrize("there", [False, True], ids=["random weights", "weights"])
def test_half_precision_is_compared_on_the_networks_that_are_there(tmp_path, there):
    if there:
        (tmp_path / "diffusion").mkdir()
        save_weights(random_unet(), tmp_path / "diffusion" / WEIGHTS)
    with pretend_cuda():
        diffusion, classifier = compare_precision(networks(tmp_path, GPU))
    assert diffusion.verdict == classifier.verdict == "good"
    assert ("random weights" in diffusion.found) != there
    assert "100% of its predictions" in classifier.found


def test_half_precision_that_is_broken_is_noticed(tmp_path, monkeypatch):
    def broken(network) -> None:
        halve(network)
        network.out[-1].weight.data *= 1.1

    monkeypatch.setattr("adds.models.unet.halve", broken)
    with pretend_cuda():
        diffusion, _ = compare_precision(networks(tmp_path, GPU))
    assert diffusion.verdict == "PROBLEM"


def holding(most: int):
    """A network whose batches fit up to a size."""

    def evaluate(states: Tensor) -> Tensor:
        if len(states) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return states

    return evaluate


@pytest.mark.parametrize(("most", "used", "largest"), [(100, 32, 64), (20, 16, 16), (3, 2, 2)])
def test_the_largest_batch_is_found(monkeypatch, most, used, largest):
    monkeypatch.setattr(machine_check, "_timed", lambda evaluate, states: Batch(len(evaluate(states)), 1.0, 0))
    found = try_batches(holding(most), lambda n: torch.zeros(n), 32, seconds=60)
    assert (found.used.size, found.tried[-1].size, found.full) == (used, largest, True)
    assert ("doesn't fit" in found.finding("diffusion").found) == (used < 32)


def test_where_nothing_fits_that_is_said():
    with pytest.raises(MemoryError, match="not even a batch of one"):
        try_batches(holding(0), lambda n: torch.zeros(n), 8, seconds=60)


def test_other_errors_are_not_taken_for_want_of_memory():
    def broken(_: Tensor) -> Tensor:
        raise RuntimeError("an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        try_batches(broken, lambda n: torch.zeros(n), 8, seconds=60)


def test_a_faster_batch_is_recommended_only_where_it_pays():
    def told(rate: float, peak: int) -> str:
        tried = [Batch(16, 50, peak), Batch(32, 100, peak), Batch(64, rate, 2 * peak)]
        return Batches(32, tried).finding("diffusion").found

    assert told(200.0, 1 << 30).endswith("try diffusion.batch_size = 64, with sampling.chunk_size = 256")
    assert "try" not in told(105.0, 1 << 30)
    assert "try" not in told(200.0, 0)


def two_jobs(monkeypatch, tmp_path, gpus: str, patience: float = 60.0):
    monkeypatch.setenv(VISIBLE, gpus)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the locks are there
    return share_out(patience)


def test_two_jobs_get_two_gpus(monkeypatch, tmp_path):
    found = two_jobs(monkeypatch, tmp_path, "GPU-aa,GPU-bb")
    assert found.verdict == "good"
    assert sorted(found.found.split()[1::2]) == ["GPU-aa", "GPU-bb"]


def test_of_two_jobs_and_one_gpu_one_waits(monkeypatch, tmp_path):
    found = two_jobs(monkeypatch, tmp_path, "GPU-aa", patience=30.0)
    assert (found.verdict, found.found) == ("good", "one GPU: the second waits for the first")


def test_two_jobs_on_one_gpu_are_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_check, "_CLAIM", "import sys; print('GPU-aa', flush=True); sys.stdin.read()")
    assert two_jobs(monkeypatch, tmp_path, "GPU-aa,GPU-bb").verdict == "PROBLEM"


def test_what_compiling_lacks_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_check.shutil, "which", lambda _: None)
    monkeypatch.setattr(machine_check.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(machine_check, "_cuda_headers", lambda: iter(()))
    assert missing_for_compiling(torch.device("cpu")) == ["a C++ compiler (g++)"]
    missing = missing_for_compiling(GPU)
    assert [words.split()[0] for words in missing] == ["a", "Triton", "CUDA's"]
    for asked, verdict in ((True, "note"), (False, "good")):
        finding, rate = try_compiling(networks(tmp_path, GPU), tmp_path, Batch(2, 1.0, 0), asked)
        assert (finding.verdict, rate) == (verdict, None)
        assert "lacks a C++ compiler (g++) and Triton and CUDA's headers" in finding.found


def test_the_headers_of_cuda_are_found_where_they_may_be(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    (tmp_path / "include").mkdir()
    (tmp_path / "include/cuda.h").touch()
    assert tmp_path / "include/cuda.h" in machine_check._cuda_headers()


def test_of_a_classifier_that_nothing_is_known_of_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_check, "LARGEST", 1)
    hub = {"kind": "timm", "name": "hf-hub:someone/else", "classes": 10, "half_precision": True}
    sizes = {"diffusion": 2, "classifier": 2}
    known = networks(tmp_path, torch.device("cpu"), classifier=hub)
    found, rates = check_networks(known, sizes, tmp_path, compile_=False)
    assert found[-1].found.startswith("nothing is known of it before it is there")
    assert list(rates) == ["diffusion"]


def test_a_table_is_aligned():
    lines = table([machine_check.Finding("a", "b"), machine_check.Finding("long", "c", "PROBLEM")]).splitlines()
    assert [line.index(found) for line, found in zip(lines, "bc", strict=True)] == [15, 15]


@pytest.mark.workflow
def test_the_check_runs_from_the_command_line(rerun):
    done = run_in(rerun, *command(rerun, "check"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ready for digits" in done.stdout
    assert "Certified accuracy" not in done.stdout, "no summary of a run that wasn't run"
    assert (rerun / "results/digits" / CHECK).exists()
