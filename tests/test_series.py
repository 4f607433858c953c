"""Several experiments side by side: paired differences, the figure, and the command that runs and compares them."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from adds.certificates.certificate import certify
from adds.monitor.series import SeriesError, compare, read_series
from adds.registry import OPTIONS
from adds.results.certified import certificates
from adds.results.series import MEASURES, comparison, draw, markdown, rows_of, side_by_side
from tests.workflow import PROJECT, TINY, copy_project, merged, run_in


def images(**radii):
    """A row per experiment and image; ``radii`` are those of each experiment's images."""
    parts = [
        pd.DataFrame(
            {
                "method": "adds",
                "sigma": 0.5,
                "votes": 1,
                "number": np.arange(len(found)),
                "experiment": name,
                "guidance_scale": 0.2 * (place + 1),
                **dict.fromkeys(OPTIONS, ""),
                "certified_percent": 100.0 * (np.array(found) > 0),
                "radius": found,
                "p_true_percent": 80.0,
                "stop_timestep": 149.0,
                "samples_of_radius": 40,
            }
        )
        for place, (name, found) in enumerate(radii.items())
    ]
    return pd.concat(parts, ignore_index=True)


def test_differences_are_paired_with_the_reference():
    """Images differ far more than experiments do: only pairs show the difference."""
    base = np.linspace(0.1, 2, 20)
    table = comparison(images(one=base, two=base + 0.05), "one").set_index("experiment")
    assert table.loc["two", "radius_difference"] == pytest.approx(0.05)
    assert table.loc["two", "radius_low"] == pytest.approx(0.05, abs=1e-9)
    assert table.loc["one", "radius_difference"] == 0
    assert table.loc["two", "radius"] == pytest.approx(base.mean() + 0.05)
    shares = {name for name in table if name.startswith(("certified", "p_true"))}
    assert all(name.endswith(("_percent", "_points")) for name in shares), "their names say their unit"
    assert {"certified_difference_points", "certified_low_points", "p_true_high_points"} <= shares


def test_only_shared_images_are_compared():
    table = comparison(images(one=[0.1, 0.2, 0.3], two=[0.2, 0.3]), "one").set_index("experiment")
    assert table.loc["two", "radius_difference"] == pytest.approx(0.1)
    assert table.loc["two", "images"] == 2


def test_the_table_names_experiments_and_leaves_the_reference_without_a_difference():
    text = markdown(comparison(images(one=[0.1, 0.2, 0.3], two=[0.3, 0.3, 0.3]), "one"), "one")
    assert "| ADDS | one | 100.0 | 0.200 | 80.0 | t = 149 |" in text
    assert "| ADDS | two | 100.0 (+0.0 [+0.0, +0.0]) | 0.300 (+0.100 [" in text
    assert "paired differences to one" in text
    assert "from the first 40 estimation samples of every image" in text


def test_the_figure_has_a_row_for_every_measure_that_differs():
    figure = draw(comparison(images(one=[0.1, 0.2], two=[0.3, 0.3]), "one"))
    assert [axis.get_ylabel() for axis in figure.axes] == [MEASURES["radius"]], "the others don't differ"
    assert figure.axes[-1].get_xlabel() == "Guidance scale"
    drawn = figure.axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(drawn, [0.15, 0.3])


@pytest.fixture
def stopped(tmp_path):
    """Results of a sequential run: alike in their first 16 samples, but sampling went on to 16 and to 64 of them."""
    row = {"method": "adds", "sigma": 0.5, "votes": 1, "label": 1, "stopped": "answered", "n0": 4, "evaluations": 200}
    row |= dict.fromkeys(OPTIONS, "") | {
        "guidance_scale": 0.8,
        "stop_timestep": 149.0,
        "budget_share": 0.9,
        "seconds": 1.0,
    }
    row |= {"identity": "one", "seed": 0, "device_kind": "cpu", "device": "CPU", "counts_selection": [0, 4]}
    ends = [{"n": n, "counts_estimation": [0, n], "counts_first": [0, 16]} for n in (16, 64)]
    counts = pd.DataFrame([{**row, "number": number, **end} for number, end in enumerate(ends)])

    def write(**changes):
        own = counts.assign(**{name: [value] * 2 for name, value in changes.items()})
        own.to_parquet(tmp_path / "counts.parquet")
        table = certificates(own, alpha=0.001, mode="sequential", bounds=["cohen"])
        table.to_parquet(tmp_path / "certificates.parquet")
        return tmp_path

    return write


def test_radii_of_sequential_runs_are_of_as_many_samples_of_every_image(stopped):
    """How long an image was sampled says how hard its question was, not how large its radius is."""
    rows = rows_of(stopped(), "cohen")
    expected = certify(selection=[0, 4], estimation=[0, 16], sigma=0.5, alpha=0.001).radius
    assert rows["radius"].tolist() == [pytest.approx(expected)] * 2
    assert expected > 0
    assert rows["samples_of_radius"].tolist() == [16, 16]
    assert rows_of(stopped(label=0), "cohen")["radius"].tolist() == [0, 0], "of another class"


def test_there_are_no_radii_where_the_first_samples_are_too_few(stopped):
    rows = rows_of(stopped(counts_first=[0, 8]), "cohen")
    assert rows["radius"].isna().all()
    table = comparison(side_by_side({"one": stopped(counts_first=[0, 8])}), "one")
    assert "| ADDS | one | 100.0 |  | 100.0 | t = 149 |" in markdown(table, "one")
    drawn = [axis.get_ylabel() for axis in draw(table).axes]
    assert drawn == [name for measure, name in MEASURES.items() if measure != "radius"]


@pytest.mark.parametrize("name", ["sweep", "ablation", "fashion_tuned", "fashion_confirm"])
def test_the_projects_own_series_can_be_read(name):
    series = read_series(PROJECT / f"config/{name}.yaml")
    assert len(series["experiments"]) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "other"}, "reference is 'other': it must be one of"),
        ({"more": 1}, "must have the keys about"),
        ({"series": "a/b"}, "'a/b' can't name an experiment"),
        ({"experiments": ["scale20"]}, "experiments must be a section of keys"),
        ({"experiments": {"scale80": None}}, r"experiments\.scale80 must be the keys that differ, or {}"),
    ],
)
def test_what_is_no_series_is_said_in_a_line(tmp_path, changes, message):
    known = yaml.safe_load((PROJECT / "config/sweep.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**known, **changes}))
    with pytest.raises(SeriesError, match=message):
        read_series(tmp_path / "mine.yaml")


def test_a_series_from_the_command_line(tmp_path, monkeypatch):
    """Two readings of Carlini's method on a few digits: run, compared, the claim about them judged."""
    folder = copy_project(tmp_path / "project")
    alone = {"densepure": None, "adds": None, "adds_oneshot": None}
    series = {
        "series": "tried",
        "about": "ablation",
        "after": ["config/digits.yaml"],
        "reference": "sigma",
        "common": merged(TINY, {"sigmas": [0.5], "methods": alone, "dataset": {"images": 6}, "images_per_job": 6}),
        "experiments": {
            noise: {"methods": {"carlini": {"votes": [1], "start": "grid", "noise": noise}}}
            for noise in ("sigma", "timestep")
        },
    }
    (folder / "tried.yaml").write_text(yaml.safe_dump(series))
    command = (sys.executable, "-m", "adds.monitor.series", "tried.yaml", "--cores", "2", "--quiet", "all")
    dry = run_in(folder, *command, "--dry-run")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert dry.stderr.endswith("a dry run: nothing was compared\n")
    done = run_in(folder, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| Carlini et al. | timestep |" in done.stdout
    table = pd.read_csv(folder / "results/tried/comparison.csv")
    assert table["noise"].tolist() == ["sigma", "timestep"]
    assert set(table["start"]) == {"grid"}
    assert table["p_true_percent"].between(10, 100).all()
    claims = pd.read_csv(folder / "results/tried/claims.csv")
    assert set(claims["claim"]) == {"noise_by_sigma"}
    assert claims["estimate"].notna().all()
    assert (folder / "results/tried/comparison.png").stat().st_size > 10_000
    assert "| Carlini et al. |" in (folder / "results/tried_timestep/tables/true_class_probability.md").read_text()
    monkeypatch.chdir(folder)
    results = {noise: Path("results", f"tried_{noise}") for noise in series["experiments"]}
    for path in Path("results/tried").glob("claims.*"):
        path.unlink()
    assert compare({**series, "about": None}, results, Path("config/claims.yaml")) in done.stdout
    assert not list(Path("results/tried").glob("claims.*")), "it is about no claim"
