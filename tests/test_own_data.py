"""Certifying one's own images with one's own networks takes a list and a dozen lines."""

import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.own_data import CONFIG, run_mine

pytestmark = pytest.mark.workflow


def test_what_it_leaves(own_data):
    results = own_data / "results/mine"
    images = pd.read_csv(results / "images.csv")
    assert list(images["class_name"]) == ["dark"] * 3 + ["light"] * 3
    assert images["number"].is_unique
    assert np.load(next(own_data.glob("resources/files/images-*/images.npy"))).shape == (6, 1, 32, 32)
    certificates = pd.read_csv(results / "certificates.csv")
    assert len(certificates) == 2 * 2 * 6
    for name in ("tables/certified_accuracy.md", "figures/certified_accuracy_votes1.png", "provenance.json"):
        assert (results / name).stat().st_size > 0


def test_its_jobs_ran_on_the_compiled_network(own_data):
    assert list(own_data.glob("resources/files/compiled-*/*/compiled.pt2"))
    assert "uncompiled" not in (own_data / "terminal.txt").read_text()


@pytest.fixture
def mine(own_data, tmp_path):
    return shutil.copytree(own_data, tmp_path / "run", symlinks=True)


def samples_on_record(folder):
    return sum(len(path.read_text().splitlines()) for path in (folder / "results/ledger").glob("*/*.jsonl"))


def test_without_labels_there_are_predictions_radii_and_abstentions(mine):
    """The same images: nothing is drawn again, although the list is another one and the experiment too."""
    listed = pd.read_csv(mine / "mine.csv")
    listed[["file"]].iloc[::-1].to_csv(mine / "unlabelled.csv", index=False)
    before = samples_on_record(mine)
    dataset = {**CONFIG["dataset"], "list": "unlabelled.csv"}
    done = run_mine(mine, experiment="unlabelled", dataset=dataset, images_per_job=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert samples_on_record(mine) == before
    results = mine / "results/unlabelled"
    certificates, labelled = (
        pd.read_csv(path / "certificates.csv").set_index(["number", "method", "bound"]).sort_index()
        for path in (results, mine / "results/mine")
    )
    assert certificates["correct"].isna().all()
    assert certificates["prediction"].equals(labelled["prediction"])
    assert certificates["radius"].equals(labelled["radius"])
    assert "have no labels" in (results / "tables/clean_accuracy.md").read_text()
    assert "certified at r = 0" in (results / "tables/certified_accuracy.md").read_text()


def test_a_picture_that_was_edited_is_read_again(mine):
    pixels = np.full((40, 50), 200, np.uint8)
    Image.fromarray(pixels).save(mine / "pictures/dark/0.png")
    done = run_mine(mine, "--dry-run")
    assert "rule images:" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "pictures/dark/1.png").write_bytes(b"\x89PNG\r\n"), "1.png is not a readable image"),
        (
            lambda folder: (folder / "mine.csv").write_text("file,label\ndark/0.png,2\n"),
            "label 2 at line 2",
        ),
        (
            lambda folder: (folder / "mine.csv").write_text("file\ndark/0.png\ndark/0.png\n"),
            "twice: line 3",
        ),
    ],
)
def test_bad_files_are_named_before_anything_is_drawn(mine, damage, message):
    damage(mine)
    done = run_mine(mine, "--forcerun", "images", experiment="damaged")
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert not (mine / "results/damaged/counts").exists()
