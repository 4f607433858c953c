"""The workflow where it is not the current folder: as a module from a path, and from a git address as snakedeploy does.

The module is the one that docs/running.md prints. No job may need an installed package, as environments may be shared
with another version of the workflow; here it is hidden from every process.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from scripts.certify import check_code
from scripts.fetch_weights import published

from adds.registry import METHODS
from tests.workflow import PROJECT, SNAKEMAKE, TINY, copy_project, merged, run_in

pytestmark = pytest.mark.workflow

PRINTED = re.search(r"```python\n(# Snakefile\n.*?)```", (PROJECT / "docs/running.md").read_text(), re.DOTALL)[1]
AT_AN_ADDRESS = re.search(r"# or (github\(.*\))", PRINTED)[1]

# As snakedeploy writes it.
DEPLOYED = """
from snakemake.utils import min_version
min_version("6.10.0")
configfile: "config/config.yaml"
module adds:
    snakefile:
        {snakefile}
    config:
        config
use rule * from adds
"""

HIDING = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", str(finder))]
sys.path = [path for path in sys.path if not path.endswith("/src")]
"""

FEW = {
    "sigmas": [0.5],
    "guidance_scale": {"0.5": 0.8},
    "methods": {"densepure": None, "adds": None, "adds_oneshot": None},
    "figures": {"votes": [1]},
}
TAG, OWNER = "v9.9.9", "somebody/adds"


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone of the workflow in another version, with its tag."""
    folder = copy_project(tmp_path_factory.mktemp("elsewhere") / "clone")
    module = folder / "src/adds/__init__.py"
    module.write_text(re.sub(r'__version__ = ".*"', '__version__ = "9.9.9"', module.read_text()))
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "all"), (*who, "tag", "-am", "", TAG)):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """No package of the project is installed, and Snakemake's cache is our own."""
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding/sitecustomize.py").write_text(HIDING)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hiding"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    python = SNAKEMAKE.with_name("python")
    done = run_in(tmp_path / "hiding", python, "-c", "import adds", environment=environment)
    assert "No module named 'adds'" in done.stderr
    return environment


def try_out(folder: Path, environment, *arguments: str, **changes):
    """Run a few digits: all that differs from the paper's configuration is in `mine.yaml`."""
    digits = yaml.safe_load((PROJECT / "config/digits.yaml").read_text())
    (folder / "mine.yaml").write_text(yaml.safe_dump(merged(merged(merged(digits, TINY), FEW), changes)))
    return run_in(folder, SNAKEMAKE, "--cores", "2", *arguments, environment=environment)


def assert_certified_by_the_clone(folder: Path, commit: str) -> None:
    told = json.loads((folder / "results/digits/provenance.json").read_text())
    assert told["versions"]["adds"] == "9.9.9"
    assert told["commit"] == commit
    assert len((folder / "results/digits/certificates.csv").read_text().splitlines()) == 1 + 4 * 2


@pytest.fixture
def by_path(clone, tmp_path) -> Path:
    """An empty folder, but for the Snakefile that is printed; the clone is beside it."""
    (tmp_path / "adds").symlink_to(clone)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Snakefile").write_text(PRINTED)
    return folder


def test_as_a_module_from_a_path(clone, by_path, environment):
    done = try_out(by_path, environment, "results/digits/provenance.json")
    assert done.returncode == 0, done.stdout + done.stderr
    commit = run_in(clone, "git", "rev-parse", "HEAD").stdout.strip()
    assert_certified_by_the_clone(by_path, commit)
    done = try_out(by_path, environment, "--dry-run", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_with_a_prefix_is_refused(by_path, environment):
    """Before any job: what jobs find by their parameters would be elsewhere."""
    (by_path / "Snakefile").write_text(
        PRINTED.replace("    config: config\n", '    config: config\n    prefix: "sub"\n')
    )
    done = try_out(by_path, environment, "--dry-run")
    assert done.returncode != 0
    assert "prefix: this workflow can't be a module with one" in done.stdout + done.stderr


def test_from_another_folder(clone, tmp_path, environment):
    """Which has no configuration of its own: the workflow's is found."""
    files = ("--configfile", clone / "config/digits.yaml")
    for words in (("--directory", tmp_path), ("--directory", tmp_path, "-s", clone / "workflow/Snakefile")):
        done = run_in(clone, SNAKEMAKE, "--dry-run", "--quiet", *words, *files, environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr


def test_jobs_of_a_module_refuse_a_machine_without_a_gpu(by_path, environment):
    """Nobody runs what a module's onstart says."""
    changes = {"device": "auto"}
    counts = "results/digits/counts/carlini/sigma0.5/votes1/00000.parquet"
    done = try_out(by_path, environment, counts, **changes)
    assert done.returncode != 0
    assert "this machine has no GPU that torch can use" in done.stdout + done.stderr
    assert not list(by_path.glob("results/ledger/*"))


def test_from_a_git_address(clone, tmp_path, environment):
    """Of which Snakemake has a clone in its cache; nothing else of the address is ever asked for."""
    cached = tmp_path / "cache/snakemake/snakemake/source-cache/snakemake-git-cache/github.com" / OWNER
    subprocess.run(["git", "clone", "-q", "--bare", clone, cached], check=True)
    folder = tmp_path / "deployed"
    (folder / "workflow").mkdir(parents=True)
    for name in ("config", "profiles"):  # what snakedeploy copies
        shutil.copytree(clone / name, folder / name)
    snakefile = AT_AN_ADDRESS.replace("OWNER/adds", OWNER).replace("TAG", TAG)
    (folder / "workflow/Snakefile").write_text(DEPLOYED.format(snakefile=snakefile))
    second = ("--configfile", "mine.yaml")
    planned = try_out(folder, environment, "--dry-run", *second)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert re.search(r"^fetch_weights +2$", planned.stdout, re.MULTILINE)
    shutil.copytree(clone / "weights", folder / "weights")  # as who has no network is told to
    planned = try_out(folder, environment, "--dry-run", *second)
    assert "fetch_weights" not in planned.stdout, "the user's files are no rule's output"
    done = try_out(folder, environment, "results/digits/provenance.json", *second)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_certified_by_the_clone(folder, f"https://raw.githubusercontent.com/{OWNER}/{TAG}/scripts")


def test_jobs_refuse_to_draw_with_other_code_than_the_run_was_begun_with():
    check_code({name: method.counts for name, method in METHODS.items()})
    with pytest.raises(RuntimeError, match="its methods have other checksums"):
        check_code({"carlini": "0123456789abcdef"})


def test_fetched_weights_must_be_those_that_are_published():
    listed = (PROJECT / "weights/README.md").read_text()
    for path in (PROJECT / "weights/digits").glob("*.safetensors"):
        expected = published(listed, path)
        assert expected.problem(path) is None
        assert expected.size == path.stat().st_size
    with pytest.raises(ValueError, match="none of the networks that the workflow publishes"):
        published(listed, Path("weights/digits/other.safetensors"))


def test_the_manifest_lists_the_library():
    """It is what Snakemake fetches from a git address: a module that isn't listed would be missing there."""
    folder = PROJECT / "src/adds"
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    wanted = sorted(name for name in found if "__pycache__" not in name and name != "MANIFEST")
    assert (folder / "MANIFEST").read_text().split() == wanted, "write these lines into src/adds/MANIFEST"
