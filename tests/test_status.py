"""What the status command says of runs that go well, go on, fail and wait."""

import json
import os
import subprocess
import sys
import time

import pytest

from adds.monitor.status import FRESH_SECONDS, jobs_of, progress_of, report, seconds_left
from adds.sampling.job import LEDGER_IS
from adds.sampling.ledger import FamilyLedgers
from tests.test_ledger import EACH, IDENTITY, LEADER, SIZE, images_of, job, sampler_in_closed_form

PLAN = {
    "experiment": "tiny",
    "settings": [
        {"method": "adds", "sigma": "0.6", "votes": 2, "leads": True},
        {"method": "adds_oneshot", "sigma": "0.6", "votes": 1, "leads": False},
    ],
    "shards": {"00000": 3, "00001": 3},
    "mode": "fixed",
    "n0": SIZE.n0,
    "n": SIZE.n,
}


@pytest.fixture
def run(tmp_path, schedule):
    """A run whose first job has drawn all its samples and has not written its counts yet."""
    results, logs = tmp_path / "results", tmp_path / "logs"
    images = images_of(0, 1, 2)
    ledgers = FamilyLedgers(tmp_path / "ledger", IDENTITY, list(images), LEADER)
    job(sampler_in_closed_form(schedule).counter, images, ledgers)
    log = logs / "certify/adds/sigma0.6/votes2/00000.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        f"2026-01-01 00:00:00 INFO certify: {LEDGER_IS} {tmp_path / 'an older one'}\n"
        f"2026-01-01 00:00:00 INFO certify: {LEDGER_IS} {ledgers.path}\n"
        "2026-01-01 00:00:00 INFO certify: image 7 (2 of 3): true class 1 has 5.0% of 40 samples\n"
    )
    return results, logs, log, ledgers.path


def state(run):
    results, logs, *_ = run
    return [progress_of(job, results, logs, time.time()) for job in jobs_of(PLAN)]


def test_a_running_job(run):
    first, *others = state(run)
    assert (first.state, first.images, first.samples) == ("running", 2, 3 * EACH)
    assert first.seconds > 0
    assert {progress.state for progress in others} == {"waiting"}
    text = report(PLAN, state(run))
    assert "tiny: 0 of 4 jobs done, 1 running, 0 failed, 3 waiting" in text
    assert "images certified: 2 of 12" in text
    assert f"running: ADDS, 2 votes, sigma 0.6, shard 00000: {3 * EACH} of {3 * EACH} samples, image 3 of 3" in text
    assert "samples per second; about" in text


def test_a_job_that_has_drawn_nothing_yet(run):
    """Its ledger isn't there before the first sample is drawn, and never where it only reads others'."""
    ledger = run[3]
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: whole.index(b"\n") + 1])
    assert (state(run)[0].state, state(run)[0].samples) == ("running", 0)
    ledger.unlink()
    assert (state(run)[0].state, state(run)[0].samples) == ("running", 0)
    run[2].write_text("2026-01-01 00:00:00 INFO certify: it has only begun\n")
    assert (state(run)[0].state, state(run)[0].images) == ("running", 0)
    assert "left at this rate" not in report(PLAN, state(run))


def test_a_record_that_is_being_written_is_no_error(run):
    ledger = run[3]
    ledger.write_bytes(ledger.read_bytes()[:-20])
    assert state(run)[0].samples == 3 * EACH - 8


def test_time_is_left_for_jobs_that_draw(run):
    """Of two jobs that draw one has drawn everything; those that read their family's samples take no time."""
    assert seconds_left(state(run), EACH) == pytest.approx(state(run)[0].seconds)
    assert report(PLAN, state(run)).endswith("samples per second; about 0 min left at this rate")
    assert "; at most" in report({**PLAN, "mode": "sequential"}, state(run))


def test_a_failed_job_tells_its_last_words(run):
    with run[2].open("a") as file:
        file.write("2026-01-01 00:00:01 CRITICAL certify: ValueError: the weights are broken\nTraceback ...\n")
    text = report(PLAN, state(run))
    assert "1 failed" in text
    assert "ValueError: the weights are broken" in text
    assert "left at this rate" not in text


def test_done_and_long_silent_jobs(run):
    results, _, log, ledger = run
    counts = results / "counts/adds/sigma0.6/votes2/00001.parquet"
    counts.parent.mkdir(parents=True)
    counts.touch()
    old = time.time() - FRESH_SECONDS - 1
    os.utime(log, (old, old))
    assert state(run)[0].state == "running", "its ledger grows"
    os.utime(ledger, (old, old))
    assert [progress.state for progress in state(run)] == ["waiting", "done", "waiting", "waiting"]


@pytest.mark.workflow
def test_the_command(finished, tmp_path):
    command = [sys.executable, "-m", "adds.monitor.status"]
    done = subprocess.run([*command, "digits"], cwd=finished, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("digits: 20 of 20 jobs done, 0 running, 0 failed, 0 waiting")
    assert json.loads((finished / "results/digits/plan.json").read_text())["shards"] == {"00000": 2, "00001": 2}
    nothing = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert nothing.returncode == 1
    assert "no run of any experiment has been started" in nothing.stderr
