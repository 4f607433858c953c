"""The benchmark's longer parts work; nobody looks at their numbers here."""

import pytest
from studies import benchmark

from adds.models.classifiers.small import SmallClassifier
from adds.models.weights import made_by
from tests.workflow import PROJECT, run_in

FEW = {"SAMPLES": 8, "SAMPLES_OF_RS": 8, "BATCH": 8, "CLASSIFIER_BATCH": 8, "TURNS": 1, "COMPILED": None}


def test_every_compared_method_has_a_usual_loop(monkeypatch):
    for name, value in FEW.items():
        monkeypatch.setattr(benchmark, name, value)
    monkeypatch.setattr(benchmark, "rs_on_the_papers_classifier", lambda _: {"method": "the paper's"})
    monkeypatch.chdir(PROJECT)
    network = benchmark.embedded_pipeline(benchmark.MODELS).denoiser.network
    usual = benchmark.Usual(network, SmallClassifier().eval(), made_by(benchmark.DIFFUSION)["schedule"])
    rows = benchmark.methods_table(usual)
    assert [row["method"] for row in rows[:3]] == ["RS, clean classifier", "Carlini et al.", "DensePure"]
    assert len(rows) == 8
    assert all(row["samples per second"] > 0 for row in rows[:-1])


@pytest.mark.workflow
def test_the_workflow_is_timed_without_what_is_made_once(monkeypatch, tmp_path):
    """Its commands are right: networks first, which then stay, and certificates."""
    ran = []
    monkeypatch.setattr(benchmark.subprocess, "run", lambda command, **_: ran.append(command))
    monkeypatch.chdir(PROJECT)
    benchmark.workflow_times(tmp_path)
    monkeypatch.undo()
    first, second, *_ = ran
    for command in (first, second):
        done = run_in(PROJECT, *command, "--dry-run")
        assert done.returncode == 0, done.stderr
