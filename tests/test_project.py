"""That the project's files agree with each other: rooms, configuration, schema, documentation, environments."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import adds
from adds.certificates.bounds import bound_function
from adds.data.digits import load_split
from adds.data.images import reader
from adds.methods.base import method
from adds.models.embedded import embedded_pipeline
from adds.models.pipeline import classifier_kind
from adds.models.training import accuracy, held_out_mse, training_process
from adds.models.weights import made_by, sha256_of
from adds.registry import BOUNDS, CLASSIFIERS, DATASETS, METHODS
from tests.test_experiment import configured

PROJECT = Path(__file__).parents[1]
SCHEMA = yaml.safe_load((PROJECT / "workflow/schemas/config.schema.yaml").read_text())
CONFIG = yaml.safe_load((PROJECT / "config/config.yaml").read_text())


def test_every_key_has_a_description():
    def check(schema, path):
        for key, entry in schema.get("properties", {}).items():
            described = "description" in entry or "description" in SCHEMA["$defs"].get(
                entry.get("$ref", "").split("/")[-1], {}
            )
            assert described, f"{path}{key}"
            check(entry, f"{path}{key}.")

    check(SCHEMA, "")


def test_every_record_is_documented():
    text = (PROJECT / "config/README.md").read_text()
    for records in (METHODS, DATASETS, CLASSIFIERS, BOUNDS):
        for name in records:
            assert f"`{name}`" in text, name
    for name, record in METHODS.items():
        for option, values in record.options.items():
            assert f"`methods.{name}.{option}`" in text
            assert all(f"`{value}`" in text for value in values)


def test_the_default_configuration_gives_every_required_key():
    def check(schema, config, path):
        for key in schema.get("required", []):
            assert key in config, f"{path}{key}"
        for key, entry in schema.get("properties", {}).items():
            if isinstance(config.get(key), dict):
                check(entry, config[key], f"{path}{key}.")

    check(SCHEMA, CONFIG, "")


ROOMS = (
    "registry",
    "configuration",
    "experiment",
    "machine",
    "data",
    "diffusion",
    "models",
    "methods",
    "certificates",
    "sampling",
    "results",
    "monitor",
)
"""In the order of the data. A room imports only from those before it, and from itself."""


def imports_of(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_those_before_it(room):
    path = PROJECT / "src/adds" / room
    for file in path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
        for module in imports_of(file):
            if module.startswith("adds."):
                other = module.split(".")[1]
                assert ROOMS.index(other) <= ROOMS.index(room), f"{file.name} imports {module}"


def test_every_room_has_its_place():
    found = {path.stem for path in (PROJECT / "src/adds").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__", "py"} == set(ROOMS)


def test_what_snakemake_itself_reads_needs_the_standard_library_only():
    read = {"registry", "configuration", "experiment", "data.preflight", "machine.gpus"}
    for name in read:
        for module in imports_of(PROJECT / f"src/adds/{name.replace('.', '/')}.py"):
            assert module.removeprefix("adds.") in read or module.split(".")[0] in sys.stdlib_module_names, module


WITHOUT_TORCH = (
    "data.images",
    "certificates.certificate",
    "sampling.job",
    "results.tables",
    "results.explorer",
    "results.claims.verdict",
    "monitor.status",
)


def test_light_modules_never_pull_torch_in():
    imports = ", ".join(f"adds.{name}" for name in WITHOUT_TORCH)
    code = f"import sys, {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("folder", ["scripts", "workflow/report"])
def test_nothing_reads_what_no_rerun_trigger_sees(folder):
    """A script or a caption that read the configuration would not be run again when it changes."""
    for file in (PROJECT / folder).iterdir():
        assert not re.search(r"snakemake\s*\.\s*config|snakemake\[.config", file.read_text()), file.name


def test_a_rule_has_one_dict_of_params():
    """Snakemake compares params as a set of values without their names; a machine and a limit are no rerun triggers."""
    allowed = {"machine", "lines", "folder"}  # for shells
    for file in (PROJECT / "workflow/rules").glob("*.smk"):
        for block in re.findall(r"^( *)params:\n((?:\1    .*\n|\n)+)", file.read_text(), re.MULTILINE):
            names = re.findall(rf"^{block[0]}    (\w+)=", block[1], re.MULTILINE)
            assert len(set(names) - {"machine", "limit"}) == 1 or set(names) <= allowed, (file.name, names)


def test_common_smk_is_short():
    """What a configuration means belongs to the library, where mypy and unit tests see it."""
    lines = (PROJECT / "workflow/rules/common.smk").read_text().splitlines()
    assert len(lines) < 200


def test_every_record_has_its_module():
    for name in METHODS:
        assert {"vote", "work"} <= set(dir(method(name)))
    for name in DATASETS:
        assert hasattr(reader(name), "read")
    for name in CLASSIFIERS:
        assert {"obtain", "load"} <= set(dir(classifier_kind(name)))
    for name in BOUNDS:
        assert callable(bound_function(name))


def test_the_digits_are_listed_in_their_order():
    listed = pd.read_csv(PROJECT / "config/digits.csv")
    _, test = load_split()
    assert listed["number"].tolist() == test.numbers.tolist()
    assert listed["label"].tolist() == test.labels.tolist()


@pytest.mark.parametrize("name", ["digits", "fashion"])
def test_published_weights_are_those_that_the_documents_state(name):
    """Checksums, sizes and how they were trained; numbers in the docs rest on them."""
    text = (PROJECT / "weights/README.md").read_text()
    files = sorted((PROJECT / "weights" / name).glob("*.safetensors"))
    config = configured(name)
    given = [file for reader in config["readers"].values() for file in reader["weights"].values()]
    given += [config[name]["weights"] for name in ("classifier", "diffusion")]
    assert sorted(file.relative_to(PROJECT).as_posix() for file in files) == sorted(given)
    for file in files:
        row = f"| `{name}/{file.name}` | {file.stat().st_size:,} | {sha256_of(file)} |"
        assert row in text
    assert sum(file.stat().st_size for file in files) < 4e6
    for file in files:
        recipe, (network, _, sigma) = made_by(file), file.stem.partition("-")
        assert recipe["training"] == {**config, **config["readers"]}[network]["training"]
        assert recipe["seed"] == config["seed"]
        assert not sigma or recipe["sigma"] == float(sigma)
    assert made_by(PROJECT / config["diffusion"]["weights"])["unet"] == config["diffusion"]["unet"]


def test_published_networks_have_the_stated_held_out_errors():
    text = (PROJECT / "weights/README.md").read_text()
    pipeline = embedded_pipeline(PROJECT / "weights/digits")
    _, test = load_split()
    process = training_process("linear", 1000)
    for first, end in ((0, 220), (220, 400)):
        part = test[np.arange(first, end)]
        error, right = (
            held_out_mse(pipeline.denoiser.network, process, part),
            accuracy(pipeline.classifier.classifier, part),
        )
        assert f"| {first} to {end - 1} | {error:.4f} | {100 * right:.1f}% |" in text


def test_the_papers_numbers():
    table = pd.read_csv(PROJECT / "config/paper_tables.csv")
    assert len(table) == 18
    best = table.sort_values("certified_accuracy").groupby("sigma").last()
    assert list(best["method"]) == ["carlini", "adds", "adds"]
    assert list(best["certified_accuracy"]) == [62.0, 46.8, 32.0]


def test_the_papers_images():
    images = pd.read_csv(PROJECT / "config/imagenet_every_200th.csv")
    classes = pd.read_csv(PROJECT / "config/imagenet_classes.csv")
    assert list(images["number"]) == list(range(0, 50_000, 200))
    assert images["label"].is_unique
    assert len(classes) == 1000
    assert images.merge(classes, on=["label", "wnid", "name"]).shape[0] == 250


def pins(path):
    lines = (line.strip().lower().replace("_", "-") for line in path.read_text().splitlines())
    return dict(line.split("==") for line in lines if "==" in line)


def test_conda_and_pip_agree():
    lock = pins(PROJECT / "envs/requirements.lock")
    environment = yaml.safe_load((PROJECT / "envs/adds.yaml").read_text())
    listed = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    conda = dict(entry.split("==") for entry in listed)
    assert all(lock[name] == version for name, version in conda.items())
    needed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert set(needed) <= set(conda)
    wanted = {
        line.strip() for line in (PROJECT / "envs/requirements.in").read_text().splitlines() if line[:1] not in "#"
    }
    assert wanted - {""} <= set(lock)


def test_version_is_stated_once():
    stated = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert adds.__version__ == stated
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == stated


def test_only_what_was_released_has_a_date():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    changelog = (PROJECT / "CHANGELOG.md").read_text()
    released = re.search(rf"^## {re.escape(citation['version'])}\b.*(\d{{4}}-\d\d-\d\d)", changelog, re.MULTILINE)
    assert str(citation.get("date-released")) == str(released and released[1])


def test_every_path_of_the_map_exists():
    text = (PROJECT / "docs/map.md").read_text()
    folders = "src|tests|workflow|scripts|studies|config|docs|envs|profiles|weights"
    paths = set(re.findall(rf"`((?:{folders})/[^`*{{}}<>]*)`", text))
    assert len(paths) > 40
    missing = [path for path in paths if not (PROJECT / path.split("::")[0]).exists()]
    assert not missing
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(rows) >= 20, "the twenty likeliest changes"


@pytest.mark.parametrize("script", sorted((PROJECT / "scripts").glob("*.py")), ids=lambda path: path.name)
def test_scripts_touch_snakemake_only_when_run(script):
    """Importing a script does nothing, so that its functions can be tested and debugged."""
    exec(compile(script.read_text(), script, "exec"), {"__name__": "imported", "__file__": str(script)})


@pytest.mark.parametrize("script", sorted((PROJECT / "scripts").glob("*.py")), ids=lambda path: path.name)
def test_scripts_take_the_library_of_their_own_workflow(script):
    """Before they import any of it."""
    first = next(module for module in imports_of(script) if module.split(".")[0] in ("bootstrap", "adds"))
    assert first == ("adds.machine.logs" if script.name == "bootstrap.py" else "bootstrap")


def test_a_cluster_runs_what_takes_seconds_as_one_job():
    """Rules that run on nodes, need no GPU and come after sampling."""
    before = {"images", "train_diffusion", "train_classifier", "make_reader", "compile_diffusion"}
    rules = {}
    for path in (PROJECT / "workflow/rules").glob("*.smk"):
        parts = re.split(r"^ *rule (\w+):", path.read_text(), flags=re.MULTILINE)
        rules |= dict(zip(parts[1::2], parts[2::2], strict=True))
    short = {name for name, text in rules.items() if "localrule: True" not in text and "gpu=" not in text}
    groups = yaml.safe_load((PROJECT / "profiles/slurm/config.yaml").read_text())["groups"]
    assert sorted(groups) == sorted(f"{name}=results" for name in short - before)
