"""The estimate against the networks' known sizes and against what runs really cost."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scripts import plan
from studies.benchmark import markdown
from studies.gpu_counts import of_the_network, waits
from torch import nn

from adds.diffusion.noise import Noise
from adds.experiment import Experiment
from adds.methods.base import Query, method, vote
from adds.methods.guidance import guided_steps
from adds.methods.release import Subject
from adds.models.fast_unet import FusedAttention
from adds.models.unet import build_unet
from adds.monitor.demand import CASTS, GIB, demand_of, demand_of_classifier, demand_of_diffusion
from adds.monitor.estimate import (
    CLASSIFICATION,
    estimate,
    evaluations_per_sample,
    in_hours,
    read_counts,
    sequential_summary,
    start_up,
    summary,
)
from adds.monitor.expected import (
    CERTIFIED_ABOVE,
    MOST_PADDING,
    NETWORKS,
    PARTS,
    SPREADS,
    Crowd,
    crowds_of,
    expected_padding,
    from_counts,
    from_tables,
    padding_warning,
    samples_needed,
    shares_of,
)
from adds.monitor.speed import CHECK, assumed_speed, checked_speed, what_is_checked
from adds.registry import METHODS, Variant
from adds.sampling.ledger import FamilyLedgers
from adds.sampling.stopping import LABEL_QUESTIONS, Certified, SampleSize, Stop
from tests.conftest import unet_pipeline
from tests.soundness.golden import READ
from tests.test_experiment import configured, digits, understood
from tests.test_ledger import IDENTITY, images_of, job, sampler_in_closed_form
from tests.workflow import PROJECT, merged

PAPER = yaml.safe_load((PROJECT / "config/config.yaml").read_text())
TABLES = pd.read_csv(PROJECT / "config/paper_tables.csv")
CIFAR10 = merged(PAPER, yaml.safe_load((PROJECT / "config/cifar10.yaml").read_text()))


def experiment(**changes):
    return Experiment.from_config(merged(PAPER, changes), PROJECT)


@pytest.mark.parametrize(("config", "parameters"), [(PAPER, 552_814_086), (CIFAR10, 52_546_438)])
def test_the_networks_have_their_sizes(config, parameters):
    """ImageNet's is published; CIFAR-10's is what improved-diffusion's layout of the checkpoint adds up to."""
    with torch.device("meta"):
        network = build_unet(config["diffusion"]["unet"])
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_the_demand_of_a_network_is_what_it_adds_up_to():
    network = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10)).to("meta")
    demand = demand_of(network, torch.empty(8, 100, device="meta"))
    weights = 100 * 200 + 200 + 200 * 10 + 10
    assert demand.operations == 2 * 8 * (100 * 200 + 200 * 10)
    assert demand.bytes_of == {"addmm": 4 * (weights + 8 * (100 + 200 + 200 + 10)), "relu": 4 * 8 * (200 + 200)}
    assert (demand.operators, demand.moved_between) == (3, 4 * 8 * 400)
    assert demand.peak == 4 * (weights + 8 * (100 + 200 + 200))
    assert demand.seconds(tflops=2.0, bandwidth=0.5) == demand.operations / 2e12 + demand.moved_between / 0.5e12


def test_the_demand_of_the_papers_networks():
    """The diffusion model's published 2.24 TFLOP an image, less what folded upsampling saves."""
    paper, shape = PAPER["diffusion"], (3, 256, 256)
    demand, single = (demand_of_diffusion(paper, half=half) for half in (True, False))
    assert demand.operations / 32e12 == pytest.approx(2.136, abs=0.001)
    assert single.operations == demand.operations
    assert demand.moved / 1e9 == pytest.approx(278, abs=1)
    assert demand.moved_between < 0.55 * single.moved_between
    assert demand.peak / GIB == pytest.approx(9.2, abs=0.1)
    assert not CASTS & {name for name, moved in demand.bytes_of.items() if moved > 0.05 * demand.moved}
    classifier = demand_of_classifier(PAPER["classifier"], shape, half=True)
    assert classifier.operations / 32e12 == pytest.approx(0.72, rel=0.02)
    assert demand_of_classifier({**PAPER["classifier"], "name": "hf-hub:someone/else"}, shape, half=True) is None


def test_a_fused_attention_writes_no_matrix_of_weights():
    qkv = torch.empty(2, 3 * 64, 1024, device="meta")
    moved = demand_of(FusedAttention(1), qkv).bytes_of["attention"]
    assert moved == 4 * (qkv.numel() + 2 * 64 * 1024)


def test_the_papers_run():
    table = estimate(experiment())
    assert table["jobs"].sum() == 4500
    assert table["samples"].unique() == [250 * 11_000]
    per_sample = table.set_index(["method", "sigma", "votes"])["evaluations_per_sample"]
    assert per_sample["carlini", 1.0, 1] == 1
    assert [per_sample["densepure", sigma, 1] for sigma in (1.0, 1.5, 2.0)] == [8, 10, 11]
    assert [per_sample["densepure", sigma, 5] for sigma in (1.0, 1.5, 2.0)] == [36, 46, 51]
    assert set(per_sample["adds", :, 1]) == {20}
    assert 4500 < table["hours_alone"].sum() < 8500
    assert table["hours"].sum() < 0.75 * table["hours_alone"].sum()
    text = summary(table, experiment())
    assert "| total | 4,500 |" in text
    assert "on A100, if that reaches 100 to 150 TFLOPS in products" in text
    assert "79.3 to 119 TFLOPS in all for the diffusion model" in text
    least, most = (
        float(found.replace(",", "")) for found in re.search(r"That is ([\d,.]+) to ([\d,.]+) h", text).groups()
    )
    assert least < table["hours"].sum() < most
    assert most / least == pytest.approx(1.5, abs=0.05)


def test_an_assumed_speed_is_that_of_products_and_of_what_is_between_them():
    def hours(**known):
        return estimate(experiment(estimate=known))["hours"].sum()

    def pair(value):
        return [value, value]

    fast, slow = 1e6, 1e-3
    assert hours(tflops=pair(100), bandwidth=pair(fast)) == pytest.approx(
        1.5 * hours(tflops=pair(150), bandwidth=pair(fast))
    )
    assert hours(tflops=pair(100), bandwidth=pair(slow)) == pytest.approx(
        hours(tflops=pair(150), bandwidth=pair(slow)), 0.01
    )


def test_a_checked_speed_comes_before_an_assumed_one(tmp_path):
    chosen, file = experiment(), tmp_path / CHECK
    assert checked_speed(chosen, file) is None
    found = {"device": "Somebody's GPU", "evaluations_per_second": {"diffusion": 10.0, "classifier": 40.0}}
    file.write_text(json.dumps({"of": what_is_checked(chosen), **found}))
    table = estimate(chosen, speed=checked_speed(chosen, file))
    rows = table.set_index(["method", "sigma", "votes"])["seconds_per_sample"]
    assert rows["carlini", 1.0, 1] == pytest.approx(1 / 10 + 1 / 40)
    text = summary(table, chosen)
    file.write_text(json.dumps({"of": what_is_checked(chosen), **found, "evaluations_per_second": {"diffusion": 10.0}}))
    checked = checked_speed(chosen, file)
    assert checked is not None
    assert checked.classifier == assumed_speed(chosen).classifier, "which wasn't checked, but isn't free"
    assert "measured (Somebody's GPU)" in text
    assert "That is" not in text
    assert checked_speed(experiment(diffusion={"batch_size": 16}), file) is None
    assert checked_speed(experiment(diffusion={"half_precision": False}), file) is None


def test_evaluations_are_those_that_runs_need(schedule, unet, image):
    """Or fewer: not all votes are cast, and a network's variance may lie above the least, so that more is guided."""
    pipeline = unet_pipeline(schedule, unet)
    for name, record in METHODS.items():
        query = Query(0.6, votes=3 if record.takes_votes else 1, readers=READ)
        noise = Noise(seed=0, stage="selection", image=0, sigma=0.6)
        before = pipeline.denoiser.evaluations
        vote(name, pipeline, query, Subject(image, torch.arange(8), noise))
        real = (pipeline.denoiser.evaluations - before) / 8
        expected = method(name).work(schedule, pipeline.grid, query).diffusion
        if record.takes_votes:
            assert real <= expected
        elif name in ("adds_oneshot", "consensus"):
            assert real >= expected
        else:
            assert real == expected


def test_an_estimate_says_that_votes_may_cost_less():
    told = "at most: those that can't change the outcome aren't cast"
    for votes in (1, 5):
        chosen = experiment(methods={"densepure": {"votes": [votes]}, "adds": {"votes": [1]}}, figures={"votes": [1]})
        assert (told in summary(estimate(chosen), chosen)) == (votes > 1)


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
    ratio = many["predicted"] / one["predicted"]
    assert many["seconds_per_sample"] == pytest.approx(0.2 * ratio)
    assert "measured seconds per sample (1 of 18 settings" in summary(table, experiment())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("spread", SPREADS)
def test_made_up_images_agree_with_the_papers_tables(part, spread):
    """All 36 numbers, but for what a share of 500 images can't show."""
    for row in TABLES.itertuples():
        crowd = from_tables(
            row.certified_accuracy / 100, row.clean_accuracy / 100, part=part, spread=spread, images=500
        )
        assert 100 * (crowd.label > CERTIFIED_ABOVE).mean() == pytest.approx(row.certified_accuracy, abs=0.5)
        assert 100 * (crowd.label > crowd.rival).mean() == pytest.approx(row.clean_accuracy, abs=0.5)
        for label, rival in zip(crowd.label[::50], crowd.rival[::50], strict=True):
            shares = shares_of(label, rival)
            assert shares.sum() == pytest.approx(1)
            assert shares[1] == shares[1:].max(), "the rival is the best of the others"


def asking(*questions):
    return SampleSize(1000, 10_000, 0.001, Stop(questions))


def test_simulated_images_take_as_long_as_their_question_is_hard():
    easy, tied, low = (Crowd(np.full(20, p), np.full(20, 1 - p)) for p in (0.99, 0.5, 0.01))
    label = asking(*LABEL_QUESTIONS.values())
    needed = [samples_needed(crowd, label, sigma=1.0, chunk=16).mean() for crowd in (easy, tied, low)]
    assert 16 <= needed[0] <= 24
    assert 16 <= needed[2] <= 24
    assert needed[1] > 1000
    majority = Crowd(np.full(20, 0.49), np.full(20, 0.1))
    by_pair, by_cohen = (
        samples_needed(majority, asking(Certified(bound, 0.0)), sigma=1.0, chunk=16).mean()
        for bound in ("pair", "cohen")
    )
    assert 5 * by_pair < by_cohen, "a near-tie with one half is none with the runner-up"


def test_counts_come_before_made_up_images():
    counted = pd.DataFrame(
        {
            "method": "carlini",
            "sigma": 1.0,
            "votes": 1,
            "label": [0, 1],
            "counts_selection": [[8, 0], [1, 7]],
            "counts_estimation": [[90, 10], [50, 50]],
        }
    )
    crowd = from_counts(counted)
    assert crowd.label == pytest.approx([98 / 108, 57 / 108], abs=0.01)
    found = crowds_of(sequential(), counted, TABLES, part=0.4, spread=0.0)
    sizes = {(setting.method, setting.sigma, setting.votes): len(crowd) for setting, crowd in found.items()}
    assert sizes["carlini", "1.0", 1] == 2
    assert len(sizes) == 18


def sequential(**changes):
    return experiment(**merged(yaml.safe_load((PROJECT / "config/paper_sequential.yaml").read_text()), changes))


def test_the_papers_tables_are_expected_to_cost_a_fraction(monkeypatch):
    """Aimed at 200 A100-hours, of a fixed run's thousands."""
    monkeypatch.setattr("adds.monitor.expected.SIMULATED", 16)
    chosen = sequential()
    table = estimate(chosen)
    text = sequential_summary(chosen, table, pd.DataFrame(), TABLES)
    expected = int(re.search(r"Expected: (\d+) hours", text)[1])
    assert 120 < expected < 320
    assert "| a fixed run of 10,000 samples | 4,583 |" in text
    assert "of which 7.5 for loading networks: 450 jobs of 10 images, 60 s each" in text
    assert "would do" not in text, "the configured 10 is about right"
    one_each = sequential(images_per_job=1)
    assert start_up(one_each) == pytest.approx(75)
    told = sequential_summary(one_each, estimate(one_each), pd.DataFrame(), TABLES)
    assert 2 <= int(re.search(r"images_per_job: (\d+) would do", told)[1]) <= 12


def test_hours_are_told_in_two_digits_at_least():
    assert [in_hours(hours) for hours in (0, 0.0312, 1.04, 9.94, 9.96, 5041.3)] == [
        "0",
        "0.031",
        "1",
        "9.9",
        "10",
        "5,041",
    ]


def test_a_gpus_hours_are_not_a_cpus():
    """Whoever certifies images of their own on a CPU has the default section that describes an A100."""
    small = digits(estimate=experiment().config["estimate"])
    assert "WARNING: device is cpu, and these are hours of what estimate describes, A100" in summary(
        estimate(small), small
    )
    assert "device is cpu" not in summary(estimate(digits()), digits())


def test_of_what_nothing_is_known_nothing_is_expected():
    chosen = sequential(paper_tables=None)
    text = sequential_summary(chosen, estimate(chosen), pd.DataFrame(), pd.DataFrame())
    assert "Of 18 of 18 settings nothing is known" in text


def test_what_a_sample_is_worth_for_the_time_left():
    """Carlini takes one evaluation and one classification, RS the latter only, ADDS many of the former."""
    plan = understood(configured("digits")).plan()
    worth = {
        (entry["method"], entry["votes"]): evaluations_per_sample(entry, plan["chain"])
        for entry in plan["settings"]
        if entry["sigma"] == "0.6"
    }
    assert worth["rs", 1] == CLASSIFICATION
    assert worth["carlini", 1] == 1 + CLASSIFICATION
    assert worth["adds", 5] > worth["adds", 1] > worth["adds_oneshot", 1] > 2
    assert worth["consensus", 1] > 0


@pytest.mark.parametrize(
    ("changes", "network", "share"),
    [
        ({}, "diffusion", 0.0),  # 4 x (4 + 8 + 4) in batches of 8
        ({"images_per_job": 1}, "diffusion", 1 / 3),  # 4, 8, 4, in batches of 8
        ({"diffusion": {"batch_size": 64}}, "diffusion", 1 - 16 * 2 / (3 * 64)),  # two images a job
        ({"classifier": {"batch_size": 64}}, "classifier", 1 - 16 * 2 / (3 * 64)),
    ],
)
def test_padding_is_foreseen(changes, network, share):
    experiment = digits(**merged({"dataset": {"images": 4}, "classifier": {"batch_size": 8}}, changes))
    known = experiment.plan(), experiment.machine()
    assert expected_padding(*known)[network] == pytest.approx(share)
    told = padding_warning(*known)
    assert bool(told) == (share > 0.1)
    assert told in summary(estimate(experiment), experiment)
    assert not told or f"of the {NETWORKS[network]}'s work will be padding: lower {network}.batch_size" in told


def test_padding_of_networks_that_nobody_asks_is_no_matter():
    alone = dict.fromkeys(("carlini", "densepure", "adds", "adds_oneshot"))
    experiment = digits(methods={**alone, "rs": {"votes": [1]}}, diffusion={"batch_size": 64})
    assert expected_padding(experiment.plan(), experiment.machine()).keys() == {"classifier"}
    alone = {**alone, "rs": None, "consensus": {"votes": [1], "readers": ["rs_trained"], "weights": [1]}}
    asked = digits(methods=alone, diffusion={"batch_size": 64})
    assert expected_padding(asked.plan(), asked.machine()).keys() == {"classifier"}, "of those that a consensus asks"


EXPERIMENTS = {
    "config": [],
    "paper_sequential": ["paper_sequential"],
    "cifar10": ["cifar10"],
    "fashion": ["fashion"],
    "digits": ["digits"],
    "sequential": ["digits", "sequential"],
    "paper_samples": ["digits", "paper_samples"],
    "readers": ["digits", "readers"],
    "readers_denoised": ["digits", "readers", "readers_denoised"],
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_shipped_experiment_wastes_its_work_on_padding(name):
    chosen = understood(configured(*EXPERIMENTS[name]))
    assert max(expected_padding(chosen.plan(), chosen.machine()).values()) <= MOST_PADDING


def test_no_shipped_experiment_is_forgotten():
    shipped = {file.stem: yaml.safe_load(file.read_text()) for file in (PROJECT / "config").glob("*.yaml")}
    assert {name for name, config in shipped.items() if "experiment" in config} <= EXPERIMENTS.keys()


@pytest.mark.parametrize(("changes", "warned"), [({}, False), ({"images_per_job": 1}, True)])
def test_the_plan_of_a_run_warns_of_padding(tmp_path, caplog, changes, warned):
    chosen = understood(configured("cifar10", sampling={"chunk_size": 128}, **changes))
    plan.main(chosen.plan(), chosen.machine(), tmp_path / "plan.json")
    assert ("about 51% of the diffusion model's work will be padding" in caplog.text) == warned


@pytest.mark.parametrize("mode", ["fixed", "sequential"])
def test_foreseen_padding_is_what_a_job_has(schedule, mode, tmp_path):
    """Carlini's method: an evaluation for every sample."""
    stop = Stop([Certified("cohen", 0.0)], at_least=8)
    size = SampleSize(n0=8, n=24) if mode == "fixed" else SampleSize(n0=8, n=8, alpha=0.05, stop=stop)
    experiment = digits(
        dataset={"images": 5},
        images_per_job=5,
        diffusion={"batch_size": 16},
        sampling={"mode": mode, "n0": size.n0, "n": size.n, "stop": {"at_least": 8}},
    )
    variant, machine = Variant("carlini", 1), experiment.machine()
    sampler = replace(sampler_in_closed_form(schedule, variant), chunk_size=machine["chunk_size"])
    images = images_of(*range(5))
    identity = {**IDENTITY, "family": "carlini"}
    ledgers = FamilyLedgers(tmp_path, identity, list(images), variant)
    job(sampler, images, ledgers, size, at_once=machine["at_once"])
    foreseen = expected_padding(experiment.plan(), machine)["diffusion"]
    assert sampler.pipeline.denoiser.batches.padding == pytest.approx(foreseen)


def test_the_benchmark_has_the_counts_of_today():
    """`python -m studies.gpu_counts` writes them: one wait more in a chunk of ADDS is noticed, wherever it is."""
    text = (PROJECT / "docs/benchmark.md").read_text()
    assert markdown(of_the_network(PAPER["diffusion"])) in text
    by_place, in_all = waits()
    assert f"waits {in_all} times for the GPU" in text
    assert markdown(by_place) in text
