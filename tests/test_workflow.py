"""The workflow as a user runs it, from the command line, on an experiment that takes a minute."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pandas as pd
import pytest
from safetensors.torch import save_file

from adds.models.weights import read_tensors
from adds.results.report import made_by
from tests.workflow import PROJECT, SNAKEMAKE, command, copy_project, merged, planned, run, run_in

VARIANTS = 5  # carlini, densepure, adds with 1 and 5 votes, adds_oneshot
SIGMAS, SHARDS = 2, 2
ADDS = 3 * SIGMAS
FIGURE_RULES = {
    "pipeline_figure": 1,
    "certified_accuracy_figure": 2,
    "bounds_figure": 1,
    "savings": 1,
    "runtime_figure": 1,
    "vote_distribution_figure": 1,
    "denoised_figure": 2,
    "budget_figure": 1,
}
AFTER_CERTIFICATES = {
    "tables": 1,
    "comparisons": 1,
    "claims": 1,
    "bounds_figure": 1,
    "savings": 1,
    "certified_accuracy_figure": 2,
    "runtime_figure": 1,
    "vote_distribution_figure": 1,
    "explorer": 1,
    "provenance": 1,
    "summary": 1,
}
AFTER_CERTIFY = {"merge": 1, "certificates": 1, **AFTER_CERTIFICATES}
PLAN = {"plan": 1}
TOLD = {"provenance": 1, "summary": 1}
FOR_MORE_IMAGES = {"detail": 1, "denoise": SIGMAS, "denoised_figure": SIGMAS}  # others may be of more classes

pytestmark = pytest.mark.workflow


def test_every_file_of_the_contract(finished):
    results = finished / "results/digits"
    images = pd.read_csv(results / "images.csv")
    assert list(images.columns) == ["number", "label", "class_name", "pixels"]
    assert len(images) == 4
    counts = pd.read_parquet(results / "counts/adds/sigma0.5/votes5/00000.parquet")
    assert list(counts["number"]) == list(images["number"][:2])
    assert list(counts["pixels"]) == list(images["pixels"][:2])
    for column in ("counts_selection", "counts_estimation", "evaluations", "seconds", "budget_share", "seed"):
        assert column in counts
    assert counts["counts_first"].map(list).tolist() == counts["counts_estimation"].map(list).tolist()
    assert counts["ballot_pairs"].eq(12).all()
    assert counts["stop_timestep"].between(0, 999).all()
    assert counts["counts_estimation"].map(sum).eq(12).all()
    certificates = pd.read_parquet(results / "certificates.parquet")
    assert len(certificates) == 2 * VARIANTS * SIGMAS * 4
    assert set(certificates["bound"]) == {"cohen", "pair"}
    assert certificates["budget_share"].between(0, 1).all()
    assert {"seed", "guidance_scale", "start", "identity", "device"} <= set(certificates.columns)
    empty = {key: [""] for key in ("guidance_scale", "p_lower", "p_upper")}
    from_csv = pd.read_csv(results / "certificates.csv", keep_default_na=False, na_values=empty)
    assert certificates[certificates["bound"] == "pair"][["p_lower", "p_upper"]].isna().all(axis=None)
    pd.testing.assert_frame_equal(certificates, from_csv, check_dtype=False)
    figures = ["certified_accuracy_votes1", "certified_accuracy_votes5", "runtime", "vote_distribution", "bounds"]
    figures += ["denoised_sigma0.5", "denoised_sigma1.0", "budget", "samples_needed", "pipeline"]
    tables = ["certified_accuracy", "clean_accuracy", "true_class_probability", "bounds", "savings"]
    tables += ["average_certified_radius", "claims"]
    expected = [results / f"figures/{name}.{suffix}" for name in figures for suffix in ("pdf", "png", "csv", "html")]
    expected += [results / f"tables/{name}.{suffix}" for name in tables for suffix in ("csv", "md", "tex", "html")]
    for file in [
        *expected,
        results / "report.html",
        results / "explorer.html",
        results / "config.yaml",
        results / "plan.json",
    ]:
        assert file.stat().st_size > 0, file
    told = json.loads((results / "provenance.json").read_text())
    assert len(told["models"]) == 2
    assert set(told["identities"]) == set(certificates["identity"])
    assert len(list((finished / "results/ledger").glob("*/*.jsonl"))) == 3 * SIGMAS * SHARDS, "one for a leader's job"


def test_the_contract_is_written_down():
    """results/README.md names every file and folder that a run leaves."""
    text = (PROJECT / "results/README.md").read_text()
    for name in ("images.csv", "counts/", "certificates.parquet", "config.yaml", "provenance.json", "plan.json"):
        assert f"`{name}" in text, name


def test_tables_agree_with_the_certificates(finished):
    results = finished / "results/digits"
    certificates = pd.read_csv(results / "certificates.csv")
    table = pd.read_csv(results / "tables/certified_accuracy.csv")
    by_cohen = certificates[certificates["bound"] == "cohen"]
    certified = by_cohen[by_cohen["correct"] & ~by_cohen["abstained"]]
    for row in table.itertuples():
        chosen = certified[
            (certified["method"] == row.method) & (certified["sigma"] == row.sigma) & (certified["votes"] == row.votes)
        ]
        assert row.accuracy_percent == 100 * len(chosen) / 4
        assert row.low_percent <= row.accuracy_percent <= row.high_percent


def test_the_terminal_shows_the_tables_at_the_end(finished):
    text = (finished / "terminal.txt").read_text()
    assert re.search(r"The paper's claims: \d+ holds?, \d+ contradicted, \d+ undecided \(why: results/", text)
    for title in (r"Certified accuracy \(%\)", r"Clean accuracy \(%\)", r"P\(true class\), mean \(%\)"):
        assert re.search(rf"^{title} +sigma 0\.5 +sigma 1$", text, re.MULTILINE)
    assert len(re.findall(r"^ADDS, 5 votes  ", text, re.MULTILINE)) == 3
    assert re.search(r"Networks took .* of the certification jobs' .* s; \d+% went elsewhere", text)
    assert "Results are in results/digits/" in text


def test_a_finished_run_has_nothing_to_do(finished):
    assert planned(finished) == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"sigmas": [0.5, 1.0, 0.75], "guidance_scale": {"0.75": 0.8}},
            {
                "certify": VARIANTS * SHARDS,
                "identify": VARIANTS,
                "denoise": 1,
                "detail": 1,
                "spend_budget": 1,
                "follow_trajectory": 1,
                **AFTER_CERTIFY,
                "denoised_figure": 1,
                "budget_figure": 1,
                "pipeline_figure": 1,
                **PLAN,
            },
            id="a sigma more",
        ),
        pytest.param(
            {"methods": {"adds": {"votes": [1, 3, 5]}}},
            {"certify": SIGMAS * SHARDS, "identify": SIGMAS, **AFTER_CERTIFY, **PLAN},
            id="a vote count more",
        ),
        pytest.param(
            {"dataset": {"images": 6}, "sampling": {"n": 16}},
            {
                "select_images": 1,
                "certify": VARIANTS * SIGMAS * (SHARDS + 1),
                "identify": VARIANTS * SIGMAS + 2,
                **FOR_MORE_IMAGES,
                **AFTER_CERTIFY,
                **PLAN,
            },
            id="two things at once",
        ),
        pytest.param(
            # the whole family has a new leader: the others are counted again, from what was drawn before
            {"methods": {"adds": {"votes": [1, 5, 7]}}},
            {"certify": 4 * SIGMAS * SHARDS, "identify": SIGMAS, **AFTER_CERTIFY, **PLAN},
            id="a larger vote count",
        ),
        pytest.param(
            {"methods": {"rs": {"votes": [1]}}},
            {
                "certify": SIGMAS * SHARDS,
                "identify": SIGMAS,
                "denoise": 2,
                "denoised_figure": 2,
                **AFTER_CERTIFY,
                **PLAN,
            },
            id="a method more",
        ),
        pytest.param(
            {"dataset": {"images": 6}},
            {
                "identify": 1,
                "select_images": 1,
                "certify": VARIANTS * SIGMAS,
                **FOR_MORE_IMAGES,
                **AFTER_CERTIFY,
                **PLAN,
            },
            id="more images",
        ),
        pytest.param(
            {"guidance_scale": {"0.5": 0.7}},
            {
                "certify": 3 * SHARDS,
                "identify": 3,
                "denoise": 1,
                "denoised_figure": 1,
                "detail": 1,
                "spend_budget": 1,
                "budget_figure": 1,
                **AFTER_CERTIFY,
                **PLAN,
            },
            id="a guidance scale",
        ),
        pytest.param({"figures": {"font_size": 10}}, {**FIGURE_RULES, **TOLD}, id="a figure's style"),
        pytest.param(
            {"figures": {"vote_distribution_images": 3}},
            {"vote_distribution_figure": 1, **TOLD},
            id="a figure's content",
        ),
        pytest.param({"figures": {"explorer_pictures": False}}, {"explorer": 1, **TOLD}, id="the explorer's pictures"),
        pytest.param(
            {"sampling": {"n0": 12, "n": 16}},
            {"certify": VARIANTS * SIGMAS * SHARDS, "identify": VARIANTS * SIGMAS + 1, **AFTER_CERTIFY, **PLAN},
            id="more samples",
        ),
        pytest.param(
            {"sampling": {"n0": 12, "n": 4, "alpha": 0.2}},
            {"certify": VARIANTS * SIGMAS * SHARDS, "identify": VARIANTS * SIGMAS + 1, **AFTER_CERTIFY, **PLAN},
            id="two values swapped",
        ),
        pytest.param(
            # certified again, as every look is noted there
            {"bound": "pair"},
            {"identify": 1, "certificates": 1, **AFTER_CERTIFICATES},
            id="the bound",
        ),
        pytest.param(
            {"sampling": {"chunk_size": 5}, "diffusion": {"batch_size": 5}, "jobs_per_gpu": 2},
            TOLD,
            id="what no result depends on",
        ),
        pytest.param(
            {"diffusion": {"compile": True}},
            TOLD,
            id="compiling",
        ),
        pytest.param(
            {"diffusion": {"compile": True}, "sampling": {"n": 16}},
            {"certify": VARIANTS * SIGMAS * SHARDS, "identify": VARIANTS * SIGMAS + 1, **AFTER_CERTIFY, **PLAN},
            id="compiling and more samples",
        ),
    ],
)
def test_a_change_reruns_only_what_depends_on_it(finished, changes, expected):
    assert planned(finished, **changes) == {**expected, "report_page": 1}


def test_the_seed_changes_everything_random(finished):
    jobs = planned(finished, seed=1)
    assert jobs["certify"] == VARIANTS * SIGMAS * SHARDS
    assert jobs["denoise"] == SIGMAS


def test_another_experiment_that_trains_leaves_the_first_ones_networks(finished):
    jobs = planned(finished, experiment="other", seed=1, models={"source": "train"})
    assert jobs["train_diffusion"] == jobs["train_classifier"] == 1
    done = run(finished, "--dry-run", experiment="other", seed=1, models={"source": "train"})
    written = set(re.findall(r"resources/digits/(?:diffusion|classifier)-\w+", done.stdout + done.stderr))
    there = {str(path.relative_to(finished)) for path in finished.glob("resources/digits/*-*")}
    assert written
    assert not written & there


def test_the_steps_of_the_chain_belong_to_the_pictures_of_samples(finished):
    """Another number of steps draws other samples of the model, and trains nothing."""
    jobs = planned(finished, diffusion={"steps": 10}, figures={"samples": 4})
    assert jobs["draw_samples"] == jobs["samples_figure"] == 1
    assert not {"train_diffusion", "obtain_diffusion"} & jobs.keys()


def test_a_comment_reruns_nothing(rerun):
    for file in ("scripts/certify.py", "workflow/rules/certify.smk", "config/digits.yaml", "Snakefile"):
        with (rerun / file).open("a") as handle:
            handle.write("\n# a comment\n")
    assert planned(rerun) == {}


def test_deleted_images_are_made_again_for_whoever_needs_them(rerun):
    next(rerun.glob("resources/digits/images-*/images.npy")).unlink()
    counts = "results/digits/counts/carlini/sigma0.5/votes1/00000.parquet"
    (rerun / counts).unlink()
    jobs = planned(rerun, counts)
    assert jobs["images"] == 1
    assert jobs["certify"] == 1


def test_more_samples_draw_only_the_missing_ones(rerun):
    target = "results/digits/counts/carlini/sigma0.5/votes1/00000.parquet"
    before = pd.read_parquet(rerun / target)
    assert run(rerun, target, sampling={"n": 24}).returncode == 0
    after = pd.read_parquet(rerun / target)
    assert after["n"].eq(24).all()
    ledgers = (rerun / "results/ledger").glob("carlini-sigma0.5-*/*.jsonl")
    texts = [text for text in (path.read_text() for path in ledgers) if f'"image":{before["number"][0]}' in text]
    firsts = re.findall(r'"first_sample":(\d+)', "".join(texts))
    assert sorted(map(int, firsts)) == sorted([0, 0, 0, 0, 8, 8, 12, 12, 16, 16])
    assert (after["evaluations"] == before["evaluations"] + 12).all()


def test_a_second_look_at_the_same_samples_is_told(rerun):
    """Also where the first one's results are gone, as long as its samples are there, or where nothing else was made."""
    results = rerun / "results/digits"
    assert json.loads((results / "provenance.json").read_text())["other_looks"] == []
    assert "These samples were also" not in (results / "summary.txt").read_text()
    shutil.rmtree(results)
    only = {"carlini": {"votes": [1]}, "densepure": None, "adds": None, "adds_oneshot": None}
    for bound, target in (("pair", "certificates.csv"), ("cohen", "summary.txt")):
        target = f"results/digits/{target}"
        done = run(rerun, target, sampling={"n": 14}, bound=bound, methods=only, figures={"votes": [1]})
        assert done.returncode == 0, done.stdout + done.stderr
    provenance = json.loads((results / "provenance.json").read_text())
    looks = [(look["n"], look["bound"], look["alpha"]) for look in provenance["other_looks"]]
    assert looks == [(12, "cohen", 0.05), (14, "pair", 0.05)]
    assert "were certified with n = 12, bound cohen, alpha = 0.05 too" in made_by(provenance, "")
    told = "These samples were also certified with n = 12, bound cohen; n = 14, bound pair: see results/digits/prov"
    assert told in (results / "summary.txt").read_text()


def test_a_killed_job_continues_to_the_same_counts(rerun):
    target = "results/digits/counts/adds/sigma0.5/votes5/00000.parquet"
    store = rerun / "results/ledger"
    changes = {"sampling": {"n": 120, "chunk_size": 8}, "seed": 3}

    def lines():
        """Of ledgers with this seed, which no other job writes."""
        texts = (path.read_bytes() for path in store.glob("adds-sigma0.5-*/*.jsonl"))
        return sum(len(text.splitlines()) for text in texts if b'"seed":3' in text)

    def kill_after(chunks):
        process = subprocess.Popen(
            command(rerun, "--nolock", target, **changes),
            cwd=rerun,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while lines() < chunks:
            assert process.poll() is None, "the job ended before it could be killed"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    kill_after(chunks=8)
    assert not (rerun / target).exists()
    done = run(rerun, "--nolock", target, **changes)
    assert done.returncode == 0, done.stderr
    continued = pd.read_parquet(rerun / target)
    (rerun / target).unlink()
    shutil.rmtree(store)
    assert run(rerun, "--nolock", target, **changes).returncode == 0
    whole = pd.read_parquet(rerun / target)
    columns = ["number", "n0", "n", "evaluations", "counts_selection", "counts_estimation", "budget_share"]
    pd.testing.assert_frame_equal(continued[columns], whole[columns])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": {"nn": 5}}, "sampling.nn: there is no such key, did you mean `n`?"),
        ({"sigmas": [0.5, 2.5]}, "guidance_scale has no entry for sigma 2.5"),
        ({"methods": {"magic": {"votes": [1]}}}, "methods: there is no 'magic'; choose from rs"),
        ({"partial": True, "experiment": "new"}, "partial is true, but results/new has no counts yet"),
    ],
)
def test_a_bad_configuration_is_told_in_a_line(finished, changes, message):
    done = run(finished, "--dry-run", **changes)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert message in text
    assert len(text.splitlines()) < 20
    assert "Traceback" not in text


def test_an_unreadable_counts_file_is_named(rerun):
    file = rerun / "results/digits/counts/carlini/sigma0.5/votes1/00000.parquet"
    file.write_bytes(b"not a parquet file")
    done = run(rerun, "results/digits/counts.parquet")
    assert done.returncode != 0
    assert "carlini/sigma0.5/votes1/00000.parquet is not a counts file" in done.stdout + done.stderr


def test_counts_of_another_configuration_are_never_tabled(rerun):
    """Also where Snakemake's records are lost: a whole run makes them anew, a partial one refuses them by name."""
    shutil.rmtree(rerun / ".snakemake")
    other = {"guidance_scale": {"0.5": 0.7}, "seed": 0}
    assert planned(rerun) == {}
    jobs = planned(rerun, **other)
    assert jobs["certify"] == 3 * SHARDS
    done = run(rerun, partial=True, **other)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "were drawn with guidance_scale 0.8 instead of 0.7" in text
    assert "They are in results/digits/counts/adds/sigma0.5/" in text
    assert "--forcerun certify" in text
    assert not (rerun / "results/digits/partial/tables").exists()


def test_going_back_to_an_older_configuration_is_noticed_too(rerun):
    other = {"guidance_scale": {"0.5": 0.7}}
    target = "results/digits/counts/adds/sigma0.5/votes5/00000.parquet"
    assert run(rerun, target, **other).returncode == 0
    shutil.rmtree(rerun / ".snakemake")
    assert planned(rerun)["certify"] >= 1


def test_the_paper_is_the_default_and_has_4500_jobs(tmp_path):
    folder = copy_project(tmp_path)
    done = run_in(folder, SNAKEMAKE, "--dry-run", "--quiet", "rules")
    assert done.returncode == 0
    text = done.stdout + done.stderr
    for rule, jobs in (("certify", 4500), ("obtain_diffusion", 1), ("download_images", 1), ("tables", 1)):
        assert re.search(rf"^{rule} +{jobs}$", text, re.MULTILINE), rule
    assert "train_" not in text


def test_the_catalogues_snakefile_plans_the_same(finished):
    changes = {"sampling": {"n": 16}}
    done = run(finished, "--snakefile", "workflow/Snakefile", "--dry-run", **changes)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^certify +{VARIANTS * SIGMAS * SHARDS}$", done.stdout + done.stderr, re.MULTILINE)


MODULE = """
configfile: "config/config.yaml"

module adds:
    snakefile: "{snakefile}"
    config: config

use rule * from adds
"""


def test_it_works_as_a_module(finished, tmp_path):
    """In a folder of the user's own, where neither the workflow nor its library is."""
    for name in ("config", "weights"):
        shutil.copytree(finished / name, tmp_path / name)
    (tmp_path / "Snakefile").write_text(MODULE.format(snakefile=finished / "Snakefile"))
    jobs = planned(tmp_path)
    assert jobs["certify"] == VARIANTS * SIGMAS * SHARDS


@pytest.mark.parametrize("target", ["estimate", "why"])
def test_targets_that_only_tell_need_no_cores(finished, target):
    before = (finished / "results/digits/plan.json").stat().st_mtime_ns
    words = [word for word in command(finished, target, "--nolock") if word not in ("--cores", "2")]
    done = run_in(finished, *words)
    assert done.returncode == 0, done.stderr
    expected = {"estimate": "| total | 20 |", "why": "samples on record (cpu): can be used"}
    assert expected[target] in done.stdout
    if target == "estimate":
        assert "measured seconds per sample (10 of 10 settings" in done.stdout
    assert (finished / "results/digits/plan.json").stat().st_mtime_ns == before


def test_the_audit_passes_on_the_demos_networks_and_fails_with_a_wrong_budget(rerun):
    done = run_in(rerun, *command(rerun, "audit"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\| 1.0 +\| independence +\| +-?\d+\.\d+ \| +\S+ \| ok \|", done.stdout)
    assert "sigma 0.5: 400 trajectories x 64 coordinates, 100.00% of the budget charged" in done.stdout
    assert "PASSED: every p-value" in done.stdout
    script = rerun / "scripts/audit.py"
    broken = "import adds.methods.privacy\n\nadds.methods.privacy.squared_budget = lambda sigma: 1 / sigma**2\n"
    script.write_text(script.read_text().replace("import logging\n", f"import logging\n{broken}", 1))
    done = run_in(rerun, *command(rerun, "audit", sigmas=[0.5]))
    assert done.returncode != 0
    assert "FAILED: variance at sigma 0.5" in done.stdout


def test_files_that_are_gone_stop_a_run_and_not_what_tells_of_it(rerun):
    """Snakemake would certify by another bound and leave `config.yaml` and summary as they are."""
    gone = {"classifier": {"weights": "nowhere.safetensors"}, "bound": "pair"}
    before = (rerun / "results/digits/tables/certified_accuracy.md").read_text()
    done = run(rerun, **gone)
    assert done.returncode != 0
    assert "classifier.weights is 'nowhere.safetensors': there is no such file" in done.stdout + done.stderr
    assert (rerun / "results/digits/tables/certified_accuracy.md").read_text() == before
    told = run_in(rerun, *command(rerun, "estimate", **gone))
    assert told.returncode == 0, told.stdout + told.stderr
    assert "| total |" in told.stdout


def test_why_names_the_key_that_differs(finished):
    done = run_in(finished, *command(finished, "why", "--nolock", guidance_scale={"0.5": 0.7}))
    assert "other guidance_scale 0.8 (now 0.7)" in done.stdout


def test_other_numbers_of_samples_are_noticed_without_snakemakes_records(rerun):
    shutil.rmtree(rerun / ".snakemake")
    assert planned(rerun, sampling={"n": 16})["certify"] == VARIANTS * SIGMAS * SHARDS
    done = run(rerun, "--config", "partial=true", sampling={"n": 16})
    assert done.returncode != 0
    assert "this configuration wants 4 + 16 (fixed)" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"dataset": {"images": 3}}, {"select_images", "merge", "certificates", "tables"}),
        ({"sampling": {"alpha": 0.01}}, {"certificates", "tables"}),
        ({"bound": "pair"}, {"certificates", "tables"}),
    ],
    ids=["images", "alpha", "bound"],
)
def test_tables_of_another_configuration_are_noticed_without_snakemakes_records(rerun, changes, rules):
    shutil.rmtree(rerun / ".snakemake")
    assert planned(rerun).keys() == set()
    assert rules <= planned(rerun, **changes).keys()


def test_sequential_mode_stops_when_it_knows(rerun):
    changes = {
        "sampling": {"mode": "sequential", "n0": 32, "n": 96, "chunk_size": 16},
        "sigmas": [0.5],
        "methods": {"densepure": None, "adds": None, "adds_oneshot": None},
        "bound": "pair",
    }
    target = "results/digits/certificates.csv"
    done = run(rerun, target, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    table = pd.read_csv(rerun / target)
    assert set(table["stopped"]) <= {"answered", "futile", "ruled out", "cap"}
    assert table["n"].between(16, 96).all()
    assert (table["n"] % 16 == 0).all()
    answered = table[(table["stopped"] == "answered") & (table["bound"] == "pair")]
    assert not answered["abstained"].any(), "what was answered at r = 0 is certified"
    assert answered["p_lower"].isna().all()
    changes["bound"] = "cohen"
    assert set(planned(rerun, **changes)) & {"certify", "merge", "certificates"} == {"certificates"}


def test_a_run_that_asks_about_labels_makes_the_two_tables(rerun):
    asked = {"questions": [{"label": "majority"}, {"label": "top"}], "futility": 0.01}
    changes = {
        "sampling": {"mode": "sequential", "n": 64, "chunk_size": 16, "stop": asked},
        "sigmas": [0.5],
        "methods": {"densepure": None, "adds": None, "adds_oneshot": None},
        "bound": "label",
    }
    done = run(rerun, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    results = rerun / "results/digits"
    table = pd.read_csv(results / "certificates.csv")
    assert set(table["bound"]) == {"label"}
    assert (table["n0"] == 0).all()
    assert (table["radius"] == 0).all()
    certified = (results / "tables/certified_accuracy.md").read_text()
    assert "certified at r = 0 as their label. Only the label was asked about" in certified
    clean = "whose label has most of all samples, selection and estimation, whether or not certified."
    assert clean in (results / "tables/clean_accuracy.md").read_text()
    assert {path.name for path in (results / "figures").glob("runtime.*")} == {
        "runtime.pdf",
        "runtime.png",
        "runtime.csv",
        "runtime.html",
    }
    assert "explorer.html" not in (results / "report.html").read_text()
    rules = planned(rerun, "--forceall", **changes)
    unwanted = {"comparisons", "savings", "claims", "detail", "bounds_figure", "certified_accuracy_figure"}
    assert not set(rules) & unwanted
    assert "The paper's claims" not in (results / "summary.txt").read_text()


def test_partial_tables_say_what_they_rest_on(rerun):
    counts = rerun / "results/digits/counts"
    (counts / "adds/sigma0.5/votes5/00001.parquet").unlink()
    for path in (counts / "carlini/sigma1.0/votes1").iterdir():
        path.unlink()
    whole = (rerun / "results/digits/tables/certified_accuracy.md").read_text()
    plan = (rerun / "results/digits/plan.json").read_text()
    jobs = planned(rerun, "--config", "partial=true")
    assert "report_page" in planned(rerun, "--forceall", "--config", "partial=no")
    made = {"select_images", "merge", "certificates", "tables", "comparisons", "plan", "provenance", "summary"}
    assert set(jobs) == made | {"identify"}
    done = run(rerun, "--config", "partial=true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (rerun / "results/digits/tables/certified_accuracy.md").read_text() == whole
    assert (rerun / "results/digits/plan.json").read_text() == plan
    tables = rerun / "results/digits/partial/tables"
    names = ("certified_accuracy", "clean_accuracy", "true_class_probability", "bounds", "average_certified_radius")
    for name in names:
        told = (tables / f"{name}.md").read_text()
        assert "PARTIAL: cells rest on 2 to 4 of 4 images, not the same everywhere. " in told
    told = (rerun / "results/digits/partial/summary.txt").read_text()
    assert "PARTIAL: 2 to 4 of 4 images" in told
    assert told.rstrip().endswith("/partial/: tables/, certificates.csv")
    rows = (tables / "certified_accuracy.md").read_text().splitlines()
    assert next(row for row in rows if row.startswith("| Carlini")).endswith("| - |")


FORBIDDEN = "raise ImportError('torch was imported')"


def test_a_job_that_reads_its_leaders_samples_imports_no_torch_and_asks_for_no_gpu(rerun):
    """Whatever the machine has: the device is the one that its leader's samples were drawn on."""
    counts = rerun / "results/digits/counts/adds/sigma0.5/votes1/00000.parquet"
    before = pd.read_parquet(counts)
    counts.unlink()
    (rerun / "forbidden/torch").mkdir(parents=True)
    (rerun / "forbidden/torch/__init__.py").write_text(FORBIDDEN)
    environment = {**os.environ, "PYTHONPATH": str(rerun / "forbidden")}
    target = str(counts.relative_to(rerun))
    done = run(rerun, target, environment=environment, device="auto")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu=0" in done.stdout + done.stderr
    assert "mem_mb=1000" in done.stdout + done.stderr
    pd.testing.assert_frame_equal(pd.read_parquet(counts), before)
    counts.unlink()
    shutil.rmtree(rerun / "results/ledger")
    done = run(rerun, target, environment=environment)
    assert done.returncode != 0
    assert "are not on record, although this job's leader has finished" in done.stdout + done.stderr


def test_permuted_classes_stop_a_run_before_it_samples(rerun):
    """By the whole list, although four images are certified. Methods that don't read that classifier go on."""
    tensors = read_tensors(rerun / "weights/digits/classifier.safetensors")
    rolled = {name: tensor.roll(1, dims=0) if len(tensor) == 10 else tensor for name, tensor in tensors.items()}
    save_file(rolled, rerun / "permuted.safetensors")
    targets = [f"results/permuted/counts/{method}/sigma0.5/votes1/00000.parquet" for method in ("carlini", "bayes")]
    classifier = {"weights": "permuted.safetensors"}
    done = run(rerun, *targets, experiment="permuted", classifier=classifier, methods={"bayes": {"votes": [1]}})
    assert done.returncode != 0
    told = next(rerun.glob("logs/permuted/check_models/classifier-*.log")).read_text()
    found = re.findall(r"ERROR check_models classifier: (.*)", told)
    assert len(found) == 1
    assert re.match(
        r"the classifier has \d\.\d% \[.*\] of 250 clean images right, below classifier.least_accuracy", found[0]
    )
    assert found[0] in done.stdout + done.stderr
    assert [(rerun / target).exists() for target in targets] == [False, True]
    passed = json.loads(next(rerun.glob("results/permuted/models/diffusion-*.json")).read_text())
    assert [level["sigma"] for level in passed["found"]] == [0.25, 0.5, 1.0]


def test_another_limit_is_for_networks_that_have_not_passed(finished):
    assert planned(finished, classifier={"least_accuracy": 0.9}) == {**TOLD, "report_page": 1}


def test_rs_needs_no_diffusion_model(rerun):
    shutil.rmtree(next(rerun.glob("resources/digits/diffusion-*")))
    target = "results/digits/counts/rs/sigma0.5/votes1/00000.parquet"
    done = run(rerun, target, methods={"rs": {"votes": [1]}})
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(pd.read_parquet(rerun / target).iloc[0]["counts_estimation"]) == 12
    assert not list(rerun.glob("resources/digits/diffusion-*"))


def test_every_reader_of_a_release_is_made_certified_and_shown(rerun):
    """Trained, fitted or given for its sigma; ours are marked as ours; nothing of it is any other method's business."""
    few = {"training": {"steps": 20}}
    changes = {
        "dataset": {"images": 2},
        "sigmas": [0.5],
        "methods": {
            "rs_trained": {"votes": [1]},
            "carlini_trained": {"votes": [1]},
            "bayes": {"votes": [1]},
            "adds_bridge": {"votes": [1, 3]},
            "consensus": {"votes": [1], "readers": ["rs_trained", "bayes", "adds_bridge"], "weights": [1, 2, 1]},
        },
        "readers": {"noised": few, "denoised": {**few, "weights": {"0.5": "weights/digits/denoised-0.4.safetensors"}}},
    }
    done = run(rerun, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(rerun.glob("logs/digits/make_reader/*.log"))) == 3
    certificates = pd.read_csv(rerun / "results/digits/certificates.csv")
    found = certificates.groupby(["method", "votes"])["number"].nunique()
    assert set(found) == {2}
    assert {"rs_trained", "carlini_trained", "bayes", "adds_bridge", "consensus"} <= set(certificates["method"])
    counts = pd.read_parquet(rerun / "results/digits/counts.parquet").set_index(["method", "votes"])["evaluations"]
    assert (counts.loc["rs_trained"] == 0).all()
    assert (counts.loc["bayes"] == 0).all()
    assert (counts.loc["carlini_trained"] == 16).all(), "one for each of 4 + 12 samples"
    assert (counts.loc["consensus"] > 16 * 3 * 10).all(), "three bridges of more than ten steps"
    table = (rerun / "results/digits/tables/certified_accuracy.md").read_text()
    for name in ("RS, trained on noise", "Bayes' rule", "ADDS, 1 guided vote (ours)", "ADDS, 3 guided votes (ours)"):
        assert f"| {name} |" in table
    assert "| Consensus (ours) |" in table
    description = json.loads((rerun / "results/digits/provenance.json").read_text())
    assert any(name.startswith("kernel-sigma0.5-") for name in description["models"])


def test_training_makes_networks_that_run(rerun):
    """One key makes them anew, in folders of their own; their loss is shown. Trained too little, they are refused."""
    changes = {
        "models": {"source": "train"},
        "diffusion": {"training": {"steps": 20, "batch_size": 16}},
        "classifier": {"training": {"steps": 150}},
    }
    targets = ["results/digits/counts/carlini/sigma0.5/votes1/00000.parquet", "results/digits/figures/loss.png"]
    done = run(rerun, *targets, **changes)
    assert done.returncode != 0
    assert "above diffusion.most_error = 0.5: are these the weights" in done.stdout + done.stderr
    done = run(rerun, *targets, **merged(changes, {"diffusion": {"most_error": None}}))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(rerun.glob("resources/digits/diffusion-*"))) == 2
    assert len(pd.read_csv(next(rerun.glob("resources/digits/*/loss.csv")))) >= 1
