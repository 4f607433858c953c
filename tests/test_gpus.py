"""Every job has a GPU of its own, whatever happens to the others. The GPUs are made up."""

import multiprocessing
import os
import random
import signal
import time

import pytest
import torch

from adds.machine import gpus
from adds.machine.devices import claim_device
from adds.machine.gpus import VISIBLE, claim, lock_folder, take_gpu, visible_gpus

context = multiprocessing.get_context("fork")


def hold(folder, jobs_per_gpu, names, pipe):
    """Take a GPU, tell which, and keep it until the process is killed."""
    gpu = None
    while gpu is None:
        gpu = claim(names, jobs_per_gpu=jobs_per_gpu, folder=folder)
        time.sleep(0.005)
    pipe.send(gpu)
    signal.pause()


def start(folder, jobs_per_gpu, names):
    """Start a process that takes a GPU; return both. Its own pipe has no lock that a kill could leave held."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=hold, args=(folder, jobs_per_gpu, names, theirs))
    process.start()
    theirs.close()
    return process, ours.recv()


@pytest.mark.parametrize(("count", "jobs_per_gpu"), [(4, 1), (3, 2)])
def test_dozens_of_jobs_that_die_never_share_more_than_they_may(tmp_path, count, jobs_per_gpu):
    names, slots = [f"gpu{number}" for number in range(count)], count * jobs_per_gpu
    running, ended, rng = {}, [], random.Random(0)
    for _ in range(48):
        while len(running) >= slots:  # as Snakemake does with --resources gpu=
            process, gpu = running.pop(rng.choice(list(running)))
            os.kill(process.pid, rng.choice([signal.SIGKILL, signal.SIGTERM]))
            process.join()
            ended.append(gpu)
        process, gpu = start(tmp_path, jobs_per_gpu, names)
        in_use = [other for _, other in running.values()]
        assert in_use.count(gpu) < jobs_per_gpu
        if len(set(in_use)) < count:
            assert gpu not in in_use, "jobs spread over the GPUs before they share one"
        running[process.pid] = process, gpu
    for process, _ in running.values():
        process.kill()
        process.join()
    assert set(ended) == set(names)


def test_a_job_waits_for_a_free_gpu_and_sees_only_its_own(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(VISIBLE, "GPU-aa, GPU-bb")
    monkeypatch.setattr(gpus.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(gpus, "_held", [])
    assert visible_gpus() == ["GPU-aa", "GPU-bb"]
    assert claim(visible_gpus(), jobs_per_gpu=1, folder=lock_folder()) == "GPU-aa"
    other, _ = start(lock_folder(), 1, ["GPU-bb"])

    def end_the_other(_pause):
        other.kill()
        other.join()

    monkeypatch.setattr(gpus.time, "sleep", end_the_other)
    assert take_gpu() == "GPU-bb", "it is free again when its process has ended"
    assert os.environ[VISIBLE] == "GPU-bb"
    assert "all of 2 GPUs are taken: waiting" in caplog.text


def test_a_schedulers_jobs_have_locks_of_their_own(tmp_path, monkeypatch):
    """Slurm may show every job its GPU as number 0: these are different GPUs."""
    monkeypatch.setattr(gpus.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(gpus, "_held", [])
    for job in ("17", "18"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv(VISIBLE, "0")
        assert take_gpu() == "0"
    monkeypatch.setenv("SLURM_JOB_ID", "19")
    monkeypatch.setenv(VISIBLE, "2,3")
    assert take_gpu() == "2"
    monkeypatch.setenv(VISIBLE, "2,3")
    assert take_gpu() == "3", "jobs of one group share out what the group was given"


def test_without_a_gpu_nothing_is_taken(monkeypatch):
    monkeypatch.setenv(VISIBLE, "")
    assert take_gpu() is None
    monkeypatch.delenv(VISIBLE)
    monkeypatch.setattr(gpus, "which", lambda _: None)
    assert visible_gpus() == []


def test_nameless_gpus_are_one_jobs_at_a_time(tmp_path, monkeypatch, caplog):
    """AMD's, and NVIDIA's where nvidia-smi is missing, as in some containers."""
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(gpus.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(gpus, "_held", [])
    monkeypatch.setattr(gpus, "which", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Instinct")
    machine, waited = {"device": "auto", "jobs_per_gpu": 4}, []

    def end_the_first(_pause):
        waited.append(len(gpus._held))
        gpus._held.pop().close()

    monkeypatch.setattr(gpus.time, "sleep", end_the_first)
    assert claim_device(machine).name == "Instinct"
    assert not waited
    assert claim_device(machine).name == "Instinct"
    assert waited == [1]
    assert "another job uses the GPU: waiting" in caplog.text


def test_a_gpu_is_taken_before_cuda_is_asked(tmp_path, monkeypatch):
    """CUDA looks at what is visible once: whoever asks it first has every GPU, and number 0 like all others."""
    monkeypatch.setenv(VISIBLE, "GPU-aa,GPU-bb")
    monkeypatch.setattr(gpus.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(gpus, "_held", [])
    seen = []

    def asked(answer):
        return lambda *_: seen.append(os.environ[VISIBLE]) or answer

    answers = {"is_available": True, "device_count": 2, "current_device": 0, "get_device_name": "one", "init": None}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, asked(answer))
    assert claim_device({"device": "cuda", "jobs_per_gpu": 1}).name == "one"
    assert seen
    assert set(seen) == {"GPU-aa"}


def listing(tmp_path, monkeypatch, **programs):
    """Put programs that print something in place of all others."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(gpus, "DEVICES", tmp_path)
    for name, text in programs.items():
        program = tmp_path / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{text}\nEND\n")
        program.chmod(0o755)


ONE, TWO = ("GPU 0: A100 (UUID: GPU-aa)", "GPU 1: A100 (UUID: GPU-bb)")
PARTS = "  MIG 1g.5gb Device 0: (UUID: MIG-c1)\n  MIG 1g.5gb Device 1: (UUID: MIG-c2)"


@pytest.mark.parametrize(
    ("programs", "names", "there"),
    [
        ({}, [], False),
        ({"nvidia_smi": f"{ONE}\n{TWO}"}, ["0", "1"], True),
        ({"nvidia_smi": f"{ONE}\n{PARTS}\n{TWO}"}, ["MIG-c1", "MIG-c2", "1"], True),
        ({"nvidia_smi": "couldn't communicate with the driver", "rocm_smi": "GPU[0]: Instinct"}, [], True),
        ({"rocm_smi": "no devices"}, [], False),
    ],
)
def test_gpus_are_listed_by_their_makers_programs(tmp_path, monkeypatch, programs, names, there):
    listing(tmp_path, monkeypatch, **programs)
    assert visible_gpus() == names
    assert gpus.has_gpu() == there


def test_a_gpu_that_no_program_lists_is_there(tmp_path, monkeypatch):
    listing(tmp_path, monkeypatch)
    (tmp_path / "nvidiactl").touch()
    assert not gpus.has_gpu()
    (tmp_path / "nvidia0").touch()
    assert gpus.has_gpu()
