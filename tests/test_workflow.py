"""The workflow as a user runs it, from the command line, on an experiment that takes a minute."""

import os
import re
import shutil
import signal
import subprocess
import time

import pandas as pd
import pytest

from tests.workflow import SNAKEMAKE, command, copy_project, planned, run

SETTINGS = 5  # carlini, densepure, adds with 1 and 5 votes, adds_oneshot
SIGMAS, SHARDS = 2, 2
FIGURE_RULES = {
    "certified_accuracy_figure": 2,
    "bounds_figure": 1,
    "saving": 1,
    "runtime_figure": 1,
    "vote_distribution_figure": 1,
    "denoised_figure": 2,
    "budget_figure": 1,
    "loss_figure": 1,
    "samples_figure": 1,
}
AFTER_CERTIFY = {
    "merge": 1,
    "certificates": 1,
    "tables": 1,
    "bounds_figure": 1,
    "saving": 1,
    "certified_accuracy_figure": 2,
    "runtime_figure": 1,
    "vote_distribution_figure": 1,
}

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("workflow")]


def test_every_file_of_the_contract(finished):
    results = finished / "results/digits"
    images = pd.read_csv(results / "images.csv")
    assert list(images.columns) == ["index", "file", "label", "class_name"]
    assert len(images) == 4
    counts = pd.read_parquet(results / "counts/adds/sigma0.5/votes5/00000.parquet")
    assert list(counts["index"]) == list(images["index"][:2])
    for column in ("counts_selection", "counts_estimation", "evaluations", "seconds", "budget_share", "seed"):
        assert column in counts
    assert counts["counts_estimation"].map(sum).eq(12).all()
    certificates = pd.read_parquet(results / "certificates.parquet")
    assert len(certificates) == SETTINGS * SIGMAS * 4
    assert certificates["budget_share"].between(0, 1).all()
    pd.testing.assert_frame_equal(certificates, pd.read_csv(results / "certificates.csv"), check_dtype=False)
    figures = ["certified_accuracy_votes1", "certified_accuracy_votes5", "runtime", "vote_distribution", "bounds"]
    figures += ["denoised_sigma0.5", "denoised_sigma1.0", "budget", "samples_needed"]
    tables = ["certified_accuracy", "clean_accuracy", "true_class_probability", "bounds", "saving"]
    expected = [results / f"figures/{name}.{suffix}" for name in figures for suffix in ("pdf", "png", "csv")]
    expected += [results / f"tables/{name}.{suffix}" for name in tables for suffix in ("csv", "md", "tex")]
    for file in [*expected, results / "report.html"]:
        assert file.stat().st_size > 0, file


def test_tables_agree_with_the_certificates(finished):
    results = finished / "results/digits"
    certificates = pd.read_csv(results / "certificates.csv")
    table = pd.read_csv(results / "tables/certified_accuracy.csv")
    certified = certificates[certificates["correct"] & ~certificates["abstained"]]
    for row in table.itertuples():
        own = certified[
            (certified["method"] == row.method) & (certified["sigma"] == row.sigma) & (certified["votes"] == row.votes)
        ]
        assert row.accuracy == len(own) / 4
        assert row.low <= row.accuracy <= row.high


def test_the_terminal_shows_the_tables_at_the_end(finished):
    text = (finished / "terminal.txt").read_text()
    assert "Certified accuracy (%)" in text
    assert "| ADDS, 5 votes |" in text
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
                "certify": SETTINGS * SHARDS,
                "denoise": 1,
                "spend_budget": 1,
                **AFTER_CERTIFY,
                "denoised_figure": 1,
                "budget_figure": 1,
            },
            id="a sigma more",
        ),
        pytest.param(
            {"methods": {"adds": {"votes": [1, 3, 5]}}},
            {"certify": SIGMAS * SHARDS, **AFTER_CERTIFY},
            id="a vote count more",
        ),
        pytest.param(
            {"dataset": {"images": 6}, "sampling": {"n": 16}},
            {"images": 1, "certify": SETTINGS * SIGMAS * (SHARDS + 1), **AFTER_CERTIFY},
            id="two things at once",
        ),
        pytest.param(
            # the whole family has a new leader: the others are counted again, from what was drawn before
            {"methods": {"adds": {"votes": [1, 5, 7]}}},
            {"certify": 4 * SIGMAS * SHARDS, **AFTER_CERTIFY},
            id="a larger vote count",
        ),
        pytest.param(
            {"methods": {"rs": {"votes": [1]}}},
            {"certify": SIGMAS * SHARDS, "denoise": 2, "denoised_figure": 2, **AFTER_CERTIFY},
            id="a method more",
        ),
        pytest.param(
            {"dataset": {"images": 6}},
            {"images": 1, "certify": SETTINGS * SIGMAS, **AFTER_CERTIFY},
            id="more images",
        ),
        pytest.param(
            {"guidance_scale": {"0.5": 0.7}},
            {
                "certify": 3 * SHARDS,
                "denoise": 1,
                "denoised_figure": 1,
                "spend_budget": 1,
                "budget_figure": 1,
                **AFTER_CERTIFY,
            },
            id="a guidance scale",
        ),
        pytest.param({"figures": {"font_size": 10}}, FIGURE_RULES, id="a figure's style"),
        pytest.param(
            {"figures": {"vote_distribution_images": 3}}, {"vote_distribution_figure": 1}, id="a figure's content"
        ),
        pytest.param(
            {"sampling": {"n": 16}}, {"certify": SETTINGS * SIGMAS * SHARDS, **AFTER_CERTIFY}, id="more samples"
        ),
        pytest.param(
            {"bound": "two_sided"}, {key: n for key, n in AFTER_CERTIFY.items() if key != "merge"}, id="the bound"
        ),
        pytest.param({"sampling": {"chunk_size": 5}}, {}, id="what no result depends on"),
    ],
)
def test_a_change_reruns_only_what_depends_on_it(finished, changes, expected):
    assert planned(finished, **changes) == expected


def test_the_seed_changes_everything_random(finished):
    jobs = planned(finished, seed=1)
    assert jobs["certify"] == SETTINGS * SIGMAS * SHARDS
    assert jobs["train_diffusion"] == jobs["train_classifier"] == 1


def test_a_comment_reruns_nothing(rerun):
    for file in ("scripts/certify.py", "workflow/rules/certify.smk", "config/digits.yaml", "Snakefile"):
        with (rerun / file).open("a") as handle:
            handle.write("\n# a comment\n")
    assert planned(rerun) == {}


def test_more_samples_draw_only_the_missing_ones(rerun):
    target = "results/digits/counts/carlini/sigma0.5/votes1/00000.parquet"
    before = pd.read_parquet(rerun / target)
    assert run(rerun, target, sampling={"n": 24}).returncode == 0
    after = pd.read_parquet(rerun / target)
    assert after["n"].eq(24).all()
    ledger = next((rerun / "results/digits/ledger/carlini-sigma0.5-votes1").glob("00000-*.jsonl"))
    drawn = re.findall(r'"first_sample":(\d+)', ledger.read_text())
    assert sorted(map(int, drawn)) == sorted([0, 0, 0, 0, 8, 8, 12, 12, 16, 16])
    assert (after["evaluations"] == before["evaluations"] + 12).all()


def test_a_killed_job_continues_to_the_same_counts(rerun):
    target = "results/digits/counts/adds/sigma0.5/votes5/00000.parquet"
    ledgers = rerun / "results/digits/ledger/adds-sigma0.5-votes5"
    changes = {"sampling": {"n": 200, "chunk_size": 8}, "seed": 0}

    def kill_after(chunks):
        process = subprocess.Popen(
            command(rerun, "--nolock", target, **changes),
            cwd=rerun,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while sum(len(file.read_bytes().splitlines()) for file in ledgers.glob("00000-*")) < chunks:
            assert process.poll() is None, "the job ended before it could be killed"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    kill_after(chunks=12)
    kill_after(chunks=24)
    assert not (rerun / target).exists()
    done = run(rerun, "--nolock", target, **changes)
    assert done.returncode == 0, done.stderr
    continued = pd.read_parquet(rerun / target)
    (rerun / target).unlink()
    shutil.rmtree(ledgers)
    assert run(rerun, "--nolock", target, **changes).returncode == 0
    whole = pd.read_parquet(rerun / target)
    columns = ["index", "n0", "n", "evaluations", "counts_selection", "counts_estimation", "budget_share"]
    assert continued[columns].map(str).equals(whole[columns].map(str))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sigmass": [1]}, ["sigmass", "unexpected"]),
        ({"sampling": {"n": "many"}}, ["'many' is not of type 'integer'", "['sampling']['n']"]),
        ({"sigmas": [0.5, 2.5]}, ["guidance_scale", "no entry for sigma 2.5"]),
        ({"sigmas": [0]}, ["['sigmas']", "0"]),
        ({"methods": {"magic": {"votes": [1]}}}, ["magic", "unexpected"]),
        ({"methods": {"adds": {"votes": [0]}}}, ["['adds']['votes']", "0 is less than the minimum"]),
        ({"guidance_scale": {"0.5": 1.5}}, ["guidance_scale", "1.5 is greater than the maximum of 1"]),
        ({"guidance_scale": {"half": 0.5}}, ["'half'", "keys must be sigmas"]),
        ({"sampling": {"n": 3}}, ["sampling.n is 3", "at least"]),
        ({"diffusion": {"steps": 7}}, ["diffusion.steps is 7", "must divide"]),
        ({"diffusion": {"source": "download"}}, ["diffusion.source"]),
        ({"dataset": {"images": 401}}, ["dataset.images is 401", "400"]),
        ({"figures": {"votes": [7]}}, ["figures.votes is [7]", "no method"]),
        ({"dataset": {"images": 0}}, ["['dataset']['images']", "0 is less than the minimum"]),
        ({"sampling": {"mode": "sequential", "n": 6}}, ["sampling.n is 6", "at least 8"]),
        (
            {"sampling": {"mode": "sequential", "n": 50, "stop": {"radii": [9.0]}}},
            ["sampling.stop.radii is [9.0]", "no radius above"],
        ),
        ({"sampling": {"stop": {"rule": "hope"}}}, ["'hope' is not one of ['radii', 'tolerance', 'budget']"]),
        ({"bound": "best"}, ["'best' is not one of ['cohen', 'two_sided']"]),
    ],
)
def test_a_bad_configuration_stops_before_any_job(tmp_path, changes, words):
    done = run(copy_project(tmp_path), "--dry-run", **changes)
    assert done.returncode != 0
    for word in words:
        assert word in done.stdout + done.stderr


def test_an_unreadable_counts_file_is_named(rerun):
    file = rerun / "results/digits/counts/carlini/sigma0.5/votes1/00000.parquet"
    file.write_bytes(b"not a parquet file")
    done = run(rerun, "results/digits/counts.parquet")
    assert done.returncode != 0
    assert "carlini/sigma0.5/votes1/00000.parquet is not a counts file" in done.stdout + done.stderr


def test_the_paper_is_the_default_and_has_4500_jobs(tmp_path):
    folder = copy_project(tmp_path)
    done = subprocess.run(
        [SNAKEMAKE, "--dry-run", "--quiet", "rules"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    text = done.stdout + done.stderr
    for rule, jobs in (("certify", 4500), ("download_diffusion", 1), ("download_images", 1), ("tables", 1)):
        assert re.search(rf"^{rule} +{jobs}$", text, re.MULTILINE), rule
    assert "train_" not in text


def test_the_catalogues_snakefile_plans_the_same(finished):
    changes = {"sampling": {"n": 16}}
    done = run(finished, "--snakefile", "workflow/Snakefile", "--dry-run", **changes)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^certify +{SETTINGS * SIGMAS * SHARDS}$", done.stdout + done.stderr, re.MULTILINE)


def test_sequential_mode_stops_when_it_knows(rerun):
    changes = {
        "sampling": {"mode": "sequential", "n0": 32, "n": 96, "chunk_size": 16},
        "sigmas": [0.5],
        "methods": {"densepure": None, "adds": None, "adds_oneshot": None},
        "bound": "two_sided",
    }
    target = "results/digits/certificates.csv"
    done = run(rerun, target, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    table = pd.read_csv(rerun / target)
    assert set(table["stopped"]) <= {"decided", "futile", "budget"}
    assert table["n"].between(16, 96).all()
    assert (table["n"] % 16 == 0).all()
    assert table["bound"].eq("two_sided").all()
    decided = table[table["stopped"] == "decided"]
    assert not decided["abstained"].any(), "what was decided at r = 0 is certified"
    changes["bound"] = "cohen"
    assert set(planned(rerun, **changes)) & {"certify", "merge", "train_diffusion"} == set()


def test_partial_tables_say_what_they_rest_on(rerun):
    counts = rerun / "results/digits/counts"
    (counts / "adds/sigma0.5/votes5/00001.parquet").unlink()
    for path in (counts / "carlini/sigma1.0/votes1").iterdir():
        path.unlink()
    whole = (rerun / "results/digits/tables/certified_accuracy.md").read_text()
    jobs = planned(rerun, partial=True, sampling={"n": 13})
    assert set(jobs) == {"images", "merge", "certificates", "tables"}, "nothing is sampled"
    done = run(rerun, partial=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (rerun / "results/digits/tables/certified_accuracy.md").read_text() == whole
    tables = rerun / "results/digits/partial/tables"
    for name in ("certified_accuracy", "clean_accuracy", "true_class_probability", "bounds"):
        assert "PARTIAL: cells rest on 2 to 4 of 4 images," in (tables / f"{name}.md").read_text()
    rows = (tables / "certified_accuracy.md").read_text().splitlines()
    assert next(row for row in rows if row.startswith("| Carlini")).endswith("| - |")


def test_jobs_run_on_the_compiled_network(rerun):
    """Compiled once, used by every job that evaluates it; compiled again, nothing is sampled again."""
    compiled = {"experiment": "compiled", "diffusion": {"compile": True}, "methods": {"adds_oneshot": None}}
    target = "results/compiled/certificates.csv"
    done = run(rerun, target, **compiled)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "uncompiled" not in output
    assert (rerun / "resources/digits/compiled.pt2").stat().st_size > 0
    found, plain = (
        pd.read_csv(rerun / f"results/{name}/certificates.csv").set_index(["method", "sigma", "votes", "index"])
        for name in ("compiled", "digits")
    )
    both = found.join(plain, rsuffix="_plain")
    # The networks differ by rounding, so that a vote rarely changes sides.
    assert (both["prediction"] == both["prediction_plain"]).mean() > 0.9
    assert both["evaluations"].sum() == both["evaluations_plain"].sum()
    (rerun / "resources/digits/compiled.pt2").unlink()
    assert "certify" not in planned(rerun, **compiled)


def test_a_job_whose_samples_are_on_record_imports_no_torch(rerun):
    counts = rerun / "results/digits/counts/adds/sigma0.5/votes1/00000.parquet"
    before = pd.read_parquet(counts)
    counts.unlink()
    forbidden = rerun / "forbidden"
    (forbidden / "torch").mkdir(parents=True)
    (forbidden / "torch/__init__.py").write_text("raise ImportError('torch was imported')")
    done = subprocess.run(
        command(rerun, str(counts.relative_to(rerun))),
        cwd=rerun,
        env={**os.environ, "PYTHONPATH": str(forbidden)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pd.testing.assert_frame_equal(pd.read_parquet(counts), before)


def test_rs_needs_no_diffusion_model(rerun):
    for name in ("pt", "json"):
        (rerun / f"resources/digits/diffusion.{name}").unlink()
    target = "results/digits/counts/rs/sigma0.5/votes1/00000.parquet"
    done = run(rerun, target, methods={"rs": {"votes": [1]}})
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(pd.read_parquet(rerun / target).iloc[0]["counts_estimation"]) == 12
    assert not (rerun / "resources/digits/diffusion.pt").exists()
