"""The recipes of docs/doors.md: each newcomer's task touches the files that its recipe says, and no more."""

import os
import re
import shutil
import sys

import pandas as pd
import pytest

from tests.test_project import PROJECT
from tests.workflow import command, merged, run_in

pytestmark = pytest.mark.workflow

RECIPES = (PROJECT / "docs/doors.md").read_text()


def blocks(title):
    """Return the code blocks of a recipe: the file that each begins with, as its first comment says, and its text."""
    section = RECIPES.split(f"## {title}\n")[1].split("\n## ")[0]
    found = re.findall(r"```python\n# ([^\s,]+)[^\n]*\n(.*?)```", section, re.DOTALL)
    assert found
    return found


@pytest.fixture
def project(finished, tmp_path):
    """A copy of a finished run, whose library is the copy's own."""
    folder = shutil.copytree(finished, tmp_path / "project", symlinks=True)
    return folder, {**os.environ, "PYTHONPATH": str(folder / "src")}


def follow(folder, title, *, record_before):
    """Do what a recipe says; return the files that it touched."""
    touched = []
    for name, text in blocks(title):
        path = folder / name
        touched.append(name)
        if path.name == "registry.py":
            registry = path.read_text()
            assert registry.count(record_before) == 1
            path.write_text(registry.replace(record_before, text + record_before))
        elif path.exists():
            path.write_text(path.read_text() + "\n\n" + text)
        else:
            path.write_text(text)
    return touched


ONE_METHOD = {
    "sigmas": [0.5],
    "methods": {"densepure": None, "adds": None, "adds_oneshot": None},
    "images_per_job": 4,
    "figures": {"votes": [1]},
}


def run_copy(project, *targets, **changes):
    folder, environment = project
    done = run_in(folder, *command(folder, *targets, **merged(ONE_METHOD, changes)), environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def counts_of(project, method, votes, *targets, **changes):
    target = f"results/digits/counts/{method}/sigma0.5/votes{votes}/00000.parquet"
    run_copy(project, target, *targets, **changes)
    return pd.read_parquet(project[0] / target)


FILES = {
    "A method": ("src/adds/methods/twice.py", '    Method(\n        "rs",\n'),
    "A data set": ("src/adds/data/stripes.py", '    Dataset("digits"'),
    "A kind of classifier": ("src/adds/models/classifiers/nearest.py", '    ClassifierKind("small"'),
}


def test_a_method_a_data_set_and_a_kind_of_classifier(project):
    """Two files each. Together they vote, are estimated, certified and tabled under their names."""
    folder, environment = project
    for title, (module, record_before) in FILES.items():
        assert follow(folder, title, record_before=record_before) == ["src/adds/registry.py", module]
    (folder / "stripes.csv").write_text("number,label\n0,0\n1,1\n2,0\n3,1\n")
    changes = {
        "methods": {"twice": {"votes": [1, 3]}, "carlini": None},
        "dataset": {"name": "stripes", "list": "stripes.csv"},
        "classifier": {"kind": "nearest", "weights": None, "least_accuracy": None},
        "diffusion": {"most_error": None},  # of digits
    }
    counts = counts_of(project, "twice", 3, "tables", **changes)
    assert list(counts["number"]) == [0, 1, 2, 3]
    assert counts["counts_estimation"].map(sum).eq(12).all()
    assert counts["evaluations"].between((1 + 2) * 16, (1 + 3) * 16).all(), "the third vote, only where it matters"
    assert (folder / "resources/stripes").is_dir()
    assert "| Twice denoised, 3 votes |" in (folder / "results/digits/tables/certified_accuracy.md").read_text()
    told = run_copy(project, "estimate", **changes)
    assert re.search(r"\| Twice denoised, 3 votes \| 1 \| 4 \|", told), told
    both = {**environment, "PYTHONPATH": f"{folder}/src:{PROJECT}"}
    golden = run_in(folder, sys.executable, "-c", GOLDEN, environment=both)
    assert golden.stdout.strip(), golden.stderr


GOLDEN = "from tests.soundness.golden import ballots_of, checksum; print(checksum(ballots_of('twice')))"


def test_a_bound(project):
    folder, environment = project
    touched = follow(folder, "A bound", record_before='    Bound("cohen"')
    assert touched == ["src/adds/registry.py", "src/adds/certificates/bounds.py"]
    done = run_in(folder, *command(folder, "tables", bound="hoeffding"), environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    certificates = pd.read_csv(folder / "results/digits/certificates.csv")
    assert set(certificates["bound"]) == {"hoeffding", "cohen", "pair"}
    wide = certificates.pivot(index=["method", "sigma", "votes", "number"], columns="bound", values="radius")
    assert (wide["hoeffding"] <= wide["cohen"] + 1e-12).all(), "Clopper and Pearson's bound is the tighter one"
    assert "by Hoeffding's bound (hoeffding)" in (folder / "results/digits/tables/certified_accuracy.md").read_text()
