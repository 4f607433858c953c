"""That the project's files agree with each other: configuration, schema, documentation, environments."""

import doctest
import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

import adds
from adds.models.classifiers.small import SmallClassifier
from adds.models.weights import describe_model
from adds.registry import CONTAINED, GUIDED, METHODS, VOTING
from tests.conftest import TINY_UNET, random_unet

PROJECT = Path(__file__).parents[1]
SCHEMA = yaml.safe_load((PROJECT / "workflow/schemas/config.schema.yaml").read_text())
CONFIG = yaml.safe_load((PROJECT / "config/config.yaml").read_text())


def keys_of(schema, prefix=""):
    """All keys of the schema, as dotted paths."""
    for key, entry in schema.get("properties", {}).items():
        yield f"{prefix}{key}"
        if "$ref" in entry:
            entry = SCHEMA["$defs"][entry["$ref"].split("/")[-1]]
        yield from keys_of(entry, f"{prefix}{key}.")


def test_every_key_has_a_description():
    def check(schema, path):
        for key, entry in schema.get("properties", {}).items():
            described = "description" in entry or "description" in SCHEMA["$defs"].get(
                entry.get("$ref", "").split("/")[-1], {}
            )
            assert described, f"{path}{key}"
            check(entry, f"{path}{key}.")

    check(SCHEMA, "")


def test_every_key_is_documented():
    text = (PROJECT / "config/README.md").read_text()
    keys = list(keys_of(SCHEMA))
    for key in keys:
        parts = key.split(".")
        sections = [".".join(parts[:depth]) for depth in range(1, len(parts))]
        by_section = any(f"`{section}.*`" in text for section in sections) or parts[0] == "methods"
        is_section = any(other.startswith(f"{key}.") for other in keys)
        assert f"`{key}`" in text or by_section or is_section, key


def test_the_default_configuration_gives_every_required_key():
    def check(schema, config, path):
        for key in schema.get("required", []):
            assert key in config, f"{path}{key}"
        for key, entry in schema.get("properties", {}).items():
            if isinstance(config.get(key), dict):
                check(entry, config[key], f"{path}{key}.")

    check(SCHEMA, CONFIG, "")


def test_schema_and_library_know_the_same_methods():
    assert set(SCHEMA["properties"]["methods"]["properties"]) == set(METHODS)
    common = (PROJECT / "workflow/rules/common.smk").read_text()
    assert set(re.search(r"^GUIDED = \((.*)\)", common, re.MULTILINE).group(1).replace('"', "").split(", ")) == GUIDED
    single = {name for name, entry in SCHEMA["properties"]["methods"]["properties"].items() if "single" in str(entry)}
    assert single == set(METHODS) - VOTING
    assert CONTAINED == {"adds_oneshot": "adds"}


def test_the_papers_numbers():
    table = pd.read_csv(PROJECT / "config/paper_tables.csv")
    assert len(table) == 18
    best = table.sort_values("certified_accuracy").groupby("sigma").last()
    assert list(best["method"]) == ["carlini", "adds", "adds"]
    assert list(best["certified_accuracy"]) == [62.0, 46.8, 32.0]


def test_the_papers_images():
    images = pd.read_csv(PROJECT / "config/imagenet_every_200th.csv")
    classes = pd.read_csv(PROJECT / "config/imagenet_classes.csv")
    assert list(images["index"]) == list(range(0, 50_000, 200))
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


def test_the_example_of_the_package_runs(tmp_path, monkeypatch):
    """The ten lines in the package's docstring, with models that were never trained."""
    folder = tmp_path / "resources/digits"
    folder.mkdir(parents=True)
    torch.save(random_unet().state_dict(), folder / "diffusion.pt")
    torch.save(SmallClassifier().state_dict(), folder / "classifier.pt")
    diffusion = {"unet": TINY_UNET, "schedule": "linear", "timesteps": 1000, "steps": 20}
    diffusion |= {"half_precision": False, "rescale_timesteps": False, "batch_size": 64}
    describe_model(folder / "diffusion.pt", diffusion, folder / "diffusion.json")
    classifier = {"kind": "small", "name": "digits", "classes": 10, "batch_size": 64}
    describe_model(folder / "classifier.pt", classifier, folder / "classifier.json")
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(adds)
    assert found.attempted >= 9
    assert found.failed == 0


@pytest.mark.parametrize("script", sorted((PROJECT / "scripts").glob("*.py")), ids=lambda path: path.name)
def test_scripts_touch_snakemake_only_when_run(script):
    """Importing a script does nothing, so that its functions can be tested and debugged."""
    exec(compile(script.read_text(), script, "exec"), {"__name__": "imported"})
