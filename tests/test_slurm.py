"""The embedded experiment on a real Slurm: a lost node, a cancelled job, one out of time, the same results.

Slow (a few minutes), and it needs root and Slurm's packages: `make test-slurm` installs them where it can.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.slurm import cluster
from tests.workflow import SNAKEMAKE, TINY, copy_project, merged

CHANGES = {
    "sigmas": [0.5],
    "methods": {"densepure": None, "adds": {"votes": [1]}, "adds_oneshot": None},
    "images_per_job": 1,
}
TARGET = "results/digits/certificates.csv"
TABLE = "results/digits/tables/certified_accuracy.csv"
PATIENCE = 600

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.skipif(cluster.missing() is not None, reason=str(cluster.missing())),
]


@pytest.fixture
def slurm(tmp_path):
    folder = tmp_path / "slurm"
    cluster.start(folder)
    yield folder
    cluster.stop(folder)


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.3)
    raise AssertionError(f"waited in vain for {what}: {cluster.queue()}")


def running():
    """Return certify jobs whose own Python process is at work, with their nodes."""
    return [
        (job, node)
        for job, state, node, comment in cluster.queue()
        if state == "RUNNING" and "certify" in comment and workers(job)
    ]


def signal_to(job, number):
    for pid in workers(job):
        os.kill(pid, number)


def workers(job):
    """Return the processes of a job that run the script itself, not Snakemake around it."""
    found = []
    for pid in cluster.processes(job):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"certify.py" in command:
            found.append(pid)
    return found


def experiment(folder):
    (folder / "tiny.yaml").write_text(yaml.safe_dump(merged(TINY, CHANGES)))
    return [str(SNAKEMAKE), "--configfile", "config/digits.yaml", "tiny.yaml"]


@pytest.mark.usefixtures("slurm")
def test_lost_cancelled_and_late_jobs_change_nothing(tmp_path):
    folder = copy_project(tmp_path / "cluster")
    command = [
        *experiment(folder),
        "--workflow-profile",
        "profiles/slurm",
        "--jobs=10",
        "--latency-wait=10",
        # Without a database squeue must do, which forgets no job here; and look more often than every 40 seconds.
        "--slurm-status-command=squeue",
        "--slurm-init-seconds-before-status-checks=5",
        "--set-resources",
        "certify:runtime=attempt",  # minutes
        "certify:gpu=1",  # a made-up one; the job computes on the CPU
        "--",
        TARGET,
        TABLE,  # in one Slurm job with the certificates, and with all else that takes seconds
    ]
    with (folder / "terminal.txt").open("w") as terminal:
        run = subprocess.Popen(command, cwd=folder, stdout=terminal, stderr=subprocess.STDOUT)
    try:
        held = {}

        def on_both_nodes():
            """Stop every job that is seen, until there are three, on both nodes."""
            for job, node in running():
                if job not in held:
                    signal_to(job, signal.SIGSTOP)
                    held[job] = node
            return len(held) > 2 and len(set(held.values())) == len(cluster.NODES)

        wait_for(on_both_nodes, "jobs on both nodes")
        late = next(iter(held))  # stays stopped until it has run out of time
        lost = next(job for job, node in held.items() if node != held[late])
        cancelled = next(job for job in held if job not in (late, lost))
        for job in held.keys() - {late, lost, cancelled}:
            signal_to(job, signal.SIGCONT)
        subprocess.run(["scancel", cancelled], check=True)
        node = held[lost]
        cluster.kill_node(node)
        time.sleep(2)
        cluster.start_node(node)
        assert run.wait(PATIENCE) == 0, (folder / "terminal.txt").read_text()[-5000:]
    finally:
        run.kill()
    ended = {job: state for job, state, *_ in cluster.queue()}
    assert ended[cancelled] == "CANCELLED"
    assert ended[late] == "TIMEOUT"
    assert ended[lost] in ("NODE_FAIL", "FAILED")
    assert (folder / TABLE).exists()

    alone = copy_project(tmp_path / "local")
    done = subprocess.run(
        [*experiment(alone), "--cores", "2", "--", TARGET],
        cwd=alone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ours, theirs = (pd.read_csv(path / TARGET).drop(columns="seconds") for path in (folder, alone))
    pd.testing.assert_frame_equal(ours, theirs)
