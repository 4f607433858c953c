"""What the status command says of runs that go well, go on, fail and wait."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from adds.monitor.status import FRESH_SECONDS, Progress, duration, jobs_of, outlook, progress_of, report
from adds.sampling.job import LEDGER_IS, PER_IMAGE
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


def per_image(place, n, n0, of=3):
    """What a job logs of an image."""
    return (
        f"2026-01-01 00:00:00 DEBUG certify: image 7 ({place} of {of}): true class 1 has 5.0% of {n} samples after "
        f"{n0} that chose the class, 0.1 s\n"
    )


@pytest.fixture
def run(tmp_path, schedule):
    """A run whose first job has drawn all its samples and has not written its counts yet."""
    results, logs = tmp_path / "results", tmp_path / "logs"
    images = images_of(0, 1, 2)
    ledgers = FamilyLedgers(tmp_path / "ledger", IDENTITY, list(images), LEADER)
    job(sampler_in_closed_form(schedule), images, ledgers)
    log = logs / "certify/adds/sigma0.6/votes2/00000.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        f"2026-01-01 00:00:00 INFO certify: {LEDGER_IS} {tmp_path / 'an older one'}\n"
        f"2026-01-01 00:00:00 INFO certify: {LEDGER_IS} {ledgers.path}\n"
        + per_image(1, SIZE.n, SIZE.n0)
        + per_image(2, SIZE.n, SIZE.n0)
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
    assert "tiny: 0 of 4 jobs done, 1 running, 0 interrupted, 0 failed, 3 waiting" in text
    assert "image-method pairs finished: 2 of 12" in text
    assert f"running: ADDS, 2 votes, sigma 0.6, shard 00000: {3 * EACH} of {3 * EACH} samples, image 3 of 3" in text
    assert re.search(
        rf"^{3 * EACH} of {6 * EACH} samples; about \d+ s of sampling left; [\d,.]+ per second$", text, re.M
    )


def test_what_jobs_log_of_images_is_read(tmp_path, schedule, caplog):
    caplog.set_level("DEBUG", logger="adds")
    images = images_of(0, 1)
    job(sampler_in_closed_form(schedule), images, FamilyLedgers(tmp_path, IDENTITY, list(images), LEADER))
    assert PER_IMAGE.findall(caplog.text) == [(place, str(SIZE.n), str(SIZE.n0)) for place in ("1", "2")]


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
    assert "left" not in report(PLAN, state(run))


def test_a_record_that_is_being_written_is_no_error(run):
    ledger = run[3]
    ledger.write_bytes(ledger.read_bytes()[:-20])
    assert state(run)[0].samples == 3 * EACH - 8


def test_time_is_left_for_jobs_that_draw(run):
    """Of two jobs that draw one has drawn everything; those that read their family's samples take no time."""
    found = outlook(PLAN, state(run))
    assert (found.samples, found.total) == (3 * EACH, 6 * EACH)
    assert found.seconds == pytest.approx(state(run)[0].seconds)


SEQUENTIAL = {**PLAN, "mode": "sequential", "n": 1000, "shards": {"00000": 10, "00001": 10, "00002": 10}}


def progress(shard, state="waiting", method="adds", **found):
    job = next(job for job in jobs_of(SEQUENTIAL) if (job.method, job.shard) == (method, f"{shard:05d}"))
    return Progress(job, state, **found)


def test_sequential_time_rests_on_what_finished_images_needed():
    """Four of ten images needed 20 samples each; six more, and ten each of two shards, are expected to as well."""
    running = progress(0, "running", images=4, needed=80, samples=90, seconds=9.0)
    found = outlook(SEQUENTIAL, [running, progress(1), progress(2)])
    assert (found.samples, found.total) == (90, 30 * 20)
    assert found.seconds == pytest.approx(0.1 * (600 - 90))
    assert str(found) == "90 of about 600 samples; about 60 s of sampling left; 10.0 per second"
    done = progress(2, "done", images=10, needed=300, samples=300, seconds=30.0)
    assert outlook(SEQUENTIAL, [running, progress(1), done]).samples == 390
    assert outlook(SEQUENTIAL, [running, progress(1), done]).total == round(380 + 16 * 380 / 14)


def test_where_no_image_has_finished_the_most_is_an_upper_bound():
    found = outlook(SEQUENTIAL, [progress(0, "running", samples=50, seconds=5.0), progress(1)])
    assert (found.samples, found.total) == (50, 20 * (SIZE.n0 + 1000))
    assert "at most 20,160 samples; at most 34 min of sampling left; 10.0 per second" in str(found)


def test_an_image_that_takes_longer_than_others_is_no_time_gained():
    last = progress(0, "running", images=9, needed=90, samples=500, seconds=50.0)
    found = outlook(SEQUENTIAL, [last, progress(1)])
    assert (found.samples, found.total) == (500, 500 + 100)


def test_settings_that_nobody_has_measured_cost_by_their_evaluations():
    settings = [
        {"method": "carlini", "sigma": "0.6", "votes": 1, "leads": True, "evaluations": 2},
        {"method": "densepure", "sigma": "0.6", "votes": 5, "leads": True, "evaluations": 100},
    ]
    plan = {**PLAN, "settings": settings, "shards": {"00000": 3}}
    carlini, densepure = jobs_of(plan)
    half = Progress(carlini, "running", images=1, needed=EACH, samples=EACH, seconds=EACH * 0.02)
    found = outlook(plan, [half, Progress(densepure, "waiting")])
    assert found.seconds == pytest.approx(2 * EACH * 0.02 + 3 * EACH * 100 * 0.01)


def test_an_interrupted_job_is_no_failed_one(run):
    with run[2].open("a") as file:
        file.write("2026-01-01 00:00:01 INFO certify: interrupted after 30 of 72 samples; the same command goes on\n")
    text = report(PLAN, state(run))
    assert "0 running, 1 interrupted, 0 failed" in text
    assert "ADDS, 2 votes, sigma 0.6, shard 00000: interrupted after 30 of 72 samples; the same command goes on" in text
    with run[2].open("a") as file:
        file.write(f"2026-01-01 00:00:02 INFO certify: {LEDGER_IS} {run[3]}\n")
    assert state(run)[0].state == "running", "it goes on"
    assert state(run)[0].images == 0, "what earlier attempts logged isn't counted twice"


def test_counts_of_another_configuration_are_not_done(run):
    """They stay until the job runs anew."""
    results, logs, log, _ = run
    counts = results / "counts/adds/sigma0.6/votes2/00000.parquet"
    counts.parent.mkdir(parents=True)
    counts.touch()
    with log.open("a") as file:
        file.write(per_image(3, SIZE.n, SIZE.n0))
    configured = {"family": "adds", "sigma": 0.6, "seed": 0, "guidance_scale": 0.8}
    plan = {**PLAN, "settings": [{**PLAN["settings"][0], "identity": configured}]}

    def first(**changes):
        job, *_ = jobs_of({**plan, **changes})
        return progress_of(job, results, logs, time.time())

    assert (first().state, first().needed) == ("done", 3 * EACH)
    assert first(n=SIZE.n + 8).state == "waiting"
    assert first(n=SIZE.n + 8, mode="sequential").state == "done"
    assert first(settings=[{**PLAN["settings"][0], "identity": {**configured, "seed": 1}}]).state == "waiting"


def test_a_failed_job_tells_its_last_words(run):
    with run[2].open("a") as file:
        file.write("2026-01-01 00:00:01 CRITICAL certify: ValueError: the weights are broken\nTraceback ...\n")
    text = report(PLAN, state(run))
    assert "1 failed" in text
    assert "ValueError: the weights are broken" in text
    assert "left" not in text


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


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (41, "50 s"), (100, "2 min"), (3600, "1 h 00 min"), (1e7, "2,777 h 47 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.workflow
def test_the_command(finished, tmp_path):
    command = [sys.executable, "-m", "adds.monitor.status"]
    done = subprocess.run([*command, "digits"], cwd=finished, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("digits: 20 of 20 jobs done, 0 running, 0 interrupted, 0 failed, 0 waiting")
    assert json.loads((finished / "results/digits/plan.json").read_text())["shards"] == {"00000": 2, "00001": 2}
    nothing = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert nothing.returncode == 1
    assert "no run of any experiment has been started" in nothing.stderr
