"""The estimate against the networks' known sizes and against what runs really cost."""

import pandas as pd
import pytest
import torch
import yaml

from adds.diffusion.noise import Noise
from adds.experiment import Experiment
from adds.methods.adds import guided_steps
from adds.methods.base import Query, method
from adds.models.unet import build_unet
from adds.monitor.estimate import estimate, operations_of, read_counts, summary
from adds.registry import METHODS
from tests.conftest import unet_pipeline
from tests.workflow import PROJECT, merged

PAPER = yaml.safe_load((PROJECT / "config/config.yaml").read_text())
CIFAR10 = merged(PAPER, yaml.safe_load((PROJECT / "config/cifar10.yaml").read_text()))


def experiment(**changes):
    return Experiment.from_config(merged(PAPER, changes), PROJECT)


@pytest.mark.parametrize(("config", "parameters"), [(PAPER, 552_814_086), (CIFAR10, 52_546_438)])
def test_the_networks_have_their_sizes(config, parameters):
    """ImageNet's is published; CIFAR-10's is what improved-diffusion's layout of the checkpoint adds up to."""
    with torch.device("meta"):
        network = build_unet(config["diffusion"]["unet"])
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_operations_of_the_papers_networks():
    each = operations_of(PAPER)
    assert each.diffusion / 1e12 == pytest.approx(2.24, rel=0.02)
    assert each.classifier / 1e12 == pytest.approx(0.72, rel=0.02)


def test_the_papers_run():
    table = estimate(experiment())
    assert table["jobs"].sum() == 4500
    assert table["samples"].unique() == [250 * 11_000]
    per_sample = table.set_index(["method", "sigma", "votes"])["evaluations_per_sample"]
    assert per_sample["carlini", 1.0, 1] == 1
    assert [per_sample["densepure", sigma, 1] for sigma in (1.0, 1.5, 2.0)] == [8, 10, 11]
    assert [per_sample["densepure", sigma, 5] for sigma in (1.0, 1.5, 2.0)] == [36, 46, 51]
    assert set(per_sample["adds", :, 1]) == {20}
    at_100, at_150 = (estimate(experiment(estimate={"tflops": speed}))["hours_alone"].sum() for speed in (100, 150))
    assert 4500 < at_150 < at_100 < 8500
    assert at_100 / at_150 == pytest.approx(1.5)
    assert table["hours"].sum() < 0.75 * table["hours_alone"].sum()
    text = summary(table, experiment())
    assert "| total | 4,500 |" in text
    assert "85 TFLOPS (A100)" in text
    assert "at most: those that can't change the outcome aren't cast" in text


def test_evaluations_are_those_that_runs_need(schedule, unet, image):
    """Or fewer: not all votes are cast, and a network's variance may lie above the least, so that more is guided."""
    pipeline = unet_pipeline(schedule, unet)
    for name, record in METHODS.items():
        query = Query(image, 0.6, votes=3 if record.takes_votes else 1)
        noise = Noise(seed=0, stage="selection", image=0, sigma=0.6)
        before = pipeline.denoiser.evaluations
        method(name).vote(pipeline, query, torch.arange(8), noise)
        real = (pipeline.denoiser.evaluations - before) / 8
        expected = method(name).work(schedule, pipeline.grid, query).diffusion
        if record.takes_votes:
            assert real <= expected
        elif name == "adds_oneshot":
            assert real >= expected
        else:
            assert real == expected


def test_guidance_that_costs_nothing_never_ends(schedule):
    grid = schedule.respaced(range(49, 1000, 50))
    assert guided_steps(grid, sigma=1.0, guidance_scale=0.0) == 19
    assert guided_steps(grid, sigma=0.1, guidance_scale=0.8) >= guided_steps(grid, sigma=1.0, guidance_scale=0.8)


def test_measurements_come_before_assumptions(tmp_path):
    counts = pd.DataFrame(
        {"method": "carlini", "sigma": 1.0, "votes": 1, "n0": 1000, "n": 10_000, "seconds": [1100.0, 3300.0]}
    )
    counts.to_parquet(tmp_path / "counts.parquet")
    table = estimate(experiment(), read_counts([tmp_path / "counts.parquet"]))
    rows = table.set_index(["method", "sigma", "votes"])
    assert rows.loc[("carlini", 1.0, 1), "seconds_per_sample"] == pytest.approx(0.2)
    one, many = rows.loc[("carlini", 1.0, 1)], rows.loc[("adds", 2.0, 5)]
    assert not many["measured"]
    ratio = many["teraflop_per_sample"] / one["teraflop_per_sample"]
    assert many["seconds_per_sample"] == pytest.approx(0.2 * ratio)
    assert "measured seconds per sample (1 of 18 settings" in summary(table, experiment())
