"""What the status command says of runs that go well, go on, fail and wait."""

import json
import os
import subprocess
import sys
import time

import pytest

from adds.monitor.status import FRESH_SECONDS, jobs_of, progress_of, report
from adds.sampling.ledger import Ledger
from tests.test_faults import IDENTITY, images, job  # noqa: F401

PLAN = {
    "experiment": "tiny",
    "settings": [["adds", "0.6", 2], ["adds_oneshot", "0.6", 1]],
    "leaders": [["adds", 2]],
    "shards": {"00000": 3, "00001": 3},
    "mode": "fixed",
    "n0": 16,
    "n": 40,
}


@pytest.fixture
def run(tmp_path, schedule, images):  # noqa: F811
    """A run whose first job has drawn all its samples and has not written its counts yet."""
    results, logs = tmp_path / "results", tmp_path / "logs"
    ledger = Ledger(results / "ledger/adds-sigma0.6-votes2/00000-x.jsonl", IDENTITY)
    job(schedule, images, ledger)
    log = logs / "certify/adds/sigma0.6/votes2/00000.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-01-01 00:00:00 INFO certify: image 7 (2 of 3): true class 1 has 5.0% of 40 samples\n")
    return results, logs, log


def state(run):
    results, logs, _ = run
    return [progress_of(job, results, logs, time.time()) for job in jobs_of(PLAN)]


def test_a_running_job(run):
    first, *others = state(run)
    assert (first.state, first.images, first.samples) == ("running", 2, 168)
    assert first.seconds > 0
    assert {progress.state for progress in others} == {"waiting"}
    text = report(PLAN, state(run))
    assert "tiny: 0 of 4 jobs done, 1 running, 0 failed, 3 waiting" in text
    assert "images certified: 2 of 12" in text
    assert "running: ADDS, 2 votes, sigma 0.6, shard 00000: 168 of 168 samples, image 3 of 3" in text
    assert "samples per second; about" in text


def test_a_failed_job_tells_its_last_words(run):
    with run[2].open("a") as file:
        file.write("2026-01-01 00:00:01 CRITICAL certify: ValueError: the weights are broken\nTraceback ...\n")
    text = report(PLAN, state(run))
    assert "1 failed" in text
    assert "ValueError: the weights are broken" in text
    assert "left at this rate" not in text


def test_done_and_long_silent_jobs(run):
    results, _, log = run
    counts = results / "counts/adds/sigma0.6/votes2/00001.parquet"
    counts.parent.mkdir(parents=True)
    counts.touch()
    old = time.time() - FRESH_SECONDS - 1
    for path in (log, *(results / "ledger").rglob("*.jsonl")):
        os.utime(path, (old, old))
    assert [progress.state for progress in state(run)] == ["waiting", "done", "waiting", "waiting"]


@pytest.mark.workflow
@pytest.mark.xdist_group("finished")
def test_the_command(finished, tmp_path):
    command = [sys.executable, "-m", "adds.status"]
    done = subprocess.run([*command, "digits"], cwd=finished, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("digits: 20 of 20 jobs done, 0 running, 0 failed, 0 waiting")
    assert json.loads((finished / "results/digits/plan.json").read_text())["shards"] == {"00000": 2, "00001": 2}
    nothing = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert nothing.returncode == 1
    assert "no run of any experiment has been started" in nothing.stderr
