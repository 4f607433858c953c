"""Fashion-MNIST from stand-ins of its IDX files, and what its configuration plans."""

import gzip
import hashlib
import os
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scripts import claims, comparisons, tables
from studies.held_out import lines, load_classifier
from studies.own_classifier import listed
from studies.publish_weights import networks, publish, trained
from studies.tuned_classifier import VOTED, Run, won_and_lost
from studies.tuned_classifier import lines as compared

from adds.configuration import ConfigError
from adds.data.fashion import FOR_CHOICES, read, read_idx, training
from adds.data.images import Form, class_names, source_of
from adds.experiment import Experiment
from adds.models.unet import load_unet
from adds.models.weights import made_by, read_tensors, save_weights
from adds.results.certified import certificates
from adds.sampling.closeups import sharpness
from tests.conftest import TINY_UNET, random_unet
from tests.test_experiment import configured, understood
from tests.workflow import PROJECT, SNAKEMAKE, copy_project, run_in

FORM = Form(28, 1)
NAMES = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
DATA = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
needs_data = pytest.mark.skipif(
    not (DATA / NAMES[0]).exists(), reason=f"{DATA} has no Fashion-MNIST: install Debian's package or set FASHION_MNIST"
)


def idx(array):
    """Return an array of bytes as an IDX file."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def stand_in(folder, train=20, test=30):
    """Write the four files with random images, of the classes 0, 1, ..., 9, 0, ..."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(0)
    images = {}
    for part, count in (("train", train), ("t10k", test)):
        images[part] = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, array in ((f"{part}-images-idx3-ubyte", images[part]), (f"{part}-labels-idx1-ubyte", labels)):
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return images


def rows(*numbers):
    return pd.DataFrame({"number": numbers, "label": [number % 10 for number in numbers]})


def test_numbers_are_places_in_the_test_set(tmp_path):
    images = stand_in(tmp_path)
    found = read(tmp_path, rows(7, 29, 0), FORM)
    assert found.dtype == np.uint8
    assert np.array_equal(found, images["t10k"][[7, 29, 0], None])


def test_files_may_be_unpacked(tmp_path):
    stand_in(tmp_path)
    expected = read(tmp_path, rows(3), FORM)
    for path in tmp_path.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert np.array_equal(read(tmp_path, rows(3), FORM), expected)


def test_the_last_training_images_are_for_choices(tmp_path):
    images = stand_in(tmp_path, train=FOR_CHOICES + 40)
    train, held_out = training(tmp_path)
    assert (len(train), len(held_out)) == (40, FOR_CHOICES)
    assert np.array_equal(np.concatenate([train.numbers, held_out.numbers]), np.arange(FOR_CHOICES + 40))
    assert train.images.dtype == np.float32
    assert np.array_equal(np.rint(255 * held_out.images[0, 0]), images["train"][40])
    assert held_out.labels[:3].tolist() == [0, 1, 2]


def test_other_lists_and_forms_are_refused(tmp_path):
    stand_in(tmp_path)
    with pytest.raises(ValueError, match="image 7 has label 7, the list of images has 3"):
        read(tmp_path, rows(1, 7, 8).assign(label=[1, 3, 8]), FORM)
    for number in (30, -1):
        with pytest.raises(ValueError, match=f"has no image {number}: it has 30"):
            read(tmp_path, rows(1, number), FORM)
    for form in (Form(32, 1), Form(28, 3)):
        with pytest.raises(ValueError, match="28 x 28 and grey"):
            read(tmp_path, rows(1), form)
    with pytest.raises(ValueError, match="needs a source"):
        read(None, rows(1), FORM)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has neither t10k-images-idx3-ubyte nor"):
        read(tmp_path, rows(1), FORM)
    stand_in(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match="is broken"):
        read(tmp_path, rows(1), FORM)
    path.write_bytes(gzip.compress(idx(np.zeros(29, np.uint8))))
    with pytest.raises(ValueError, match="the labels"):
        read(tmp_path, rows(1), FORM)


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x08\x01", idx(np.zeros(3, np.uint8)) + b"0", b"<html>"])
def test_what_is_no_idx_file_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="not an IDX file"):
        read_idx(tmp_path, "file")


def test_a_source_is_a_file_or_the_folder_of_several():
    assert source_of(None) is source_of([]) is None
    assert source_of("a/b.tar") == source_of(["a/b.tar"]) == Path("a/b.tar")
    assert source_of(["a/b/c.gz", "a/b/d.gz"]) == Path("a/b")


def test_the_list_is_balanced_from_its_beginning():
    found = pd.read_csv(PROJECT / "config/fashion_250.csv")
    assert len(found) == 250
    assert found["number"].is_unique
    for first in range(0, 250, 10):
        assert found["label"][first : first + 10].tolist() == list(range(10))
    assert class_names(PROJECT / "config/fashion_classes.csv")[9] == "Ankle boot"


@needs_data
def test_the_images_are_as_sharp_as_the_document_says():
    images = listed("fashion", DATA, PROJECT / "config/fashion_250.csv", Form(28, 1, crop=False)).images
    sharp = f"{float(sharpness(torch.from_numpy(images)).mean()):.4f}"
    assert f"(0.1766, 0.1765 and 0.1755 of {sharp})" in (PROJECT / "docs/fashion.md").read_text()


@needs_data
def test_the_list_is_every_40th_of_each_class():
    labels = read_idx(DATA, "t10k-labels-idx1-ubyte")
    chosen = np.stack([np.flatnonzero(labels == label)[::40] for label in range(10)])
    found = pd.read_csv(PROJECT / "config/fashion_250.csv")
    assert found["number"].tolist() == chosen.T.flatten().tolist()
    assert found["label"].tolist() == labels[found["number"]].tolist()


def test_several_files_are_downloaded_into_one_folder():
    experiment = understood(configured("fashion"))
    files = experiment.archive_files()
    assert [Path(path).name for path in files] == NAMES
    assert experiment.images_source == list(files)
    address = experiment.config["dataset"]["download"]["urls"][0]
    assert all(download["urls"] == [address + Path(path).name] for path, download in files.items())
    assert all(re.fullmatch("[0-9a-f]{32}", download["md5"]) for download in files.values())
    assert [str(found["target"]) for found in experiment.downloads()][:4] == list(files)
    assert experiment.download_of_images()["download"] == list(files.values())
    one = understood(configured("cifar10"))
    assert one.download_of_images()["download"] == one.config["dataset"]["download"], "other params would download anew"
    local = understood(configured("fashion", dataset={"source": "there"}))
    assert (local.archive_files(), local.images_source) == ({}, ["there"])


def test_only_what_is_trained_waits_for_training_images():
    trained = understood(configured("fashion", models={"source": "train"}, dataset={"source": "there"}))
    assert trained.training_source(trained.recipe("diffusion")) == ["there"]
    assert trained.training_source(trained.reader("noised", "0.5")) == ["there"]
    given = understood(configured("fashion", models={"source": "given"}, dataset={"source": "there"}))
    assert given.training_source(given.reader("noised", "0.5")) == []
    digits = understood(configured("digits", models={"source": "train"}))
    assert digits.training_source(digits.recipe("diffusion")) == []


def test_kernels_of_all_its_training_images_are_refused():
    with pytest.raises(ConfigError, match=r"methods\.bayes is for few and small training images"):
        understood(configured("fashion", methods={"bayes": {"votes": [1]}}))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.workflow
def test_networks_are_trained_on_downloaded_files(tmp_path):
    """Everything that needs training images: the two networks and both readers, in a few steps."""
    folder = copy_project(tmp_path / "project")
    stand_in(tmp_path / "served", train=FOR_CHOICES + 50, test=10_000)
    files = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in (tmp_path / "served").iterdir()}
    short = {"steps": 2, "batch_size": 4, "learning_rate": 0.001}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = configured(
            "fashion",
            models={"source": "train"},
            dataset={
                "list": "list.csv",
                "images": 2,
                "download": {"urls": [f"http://127.0.0.1:{server.server_port}/"], "files": files},
            },
            diffusion={"training": {**short, "low_noise": 0.5}, "compile": False},
            classifier={"training": short},
            sigmas=[0.5],
        )
        for reader in config["readers"].values():
            reader["training"] = short
        rows(3, 14).to_csv(folder / "list.csv", index=False)
        (folder / "small.yaml").write_text(yaml.safe_dump(config))
        wanted = [f"{path}/weights" for path in Experiment.from_config(config, folder).all_folders()]
        done = run_in(folder, SNAKEMAKE, "--cores", "1", "--configfile", "small.yaml", "--", *wanted)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (folder / "resources/fashion/files").iterdir()) == sorted(files)
    made = {path.parent.name.rpartition("-")[0] for path in folder.glob("resources/fashion/*/weights")}
    assert made == {"diffusion", "classifier", "noised-sigma0.5", "denoised-sigma0.5"}
    assert not list(folder.glob("resources/fashion/*/checkpoint.pt"))


@pytest.mark.workflow
def test_it_runs_whole_from_the_published_weights(tmp_path):
    """To the report and the verdicts: every method, with two images that nobody drew and a handful of samples."""
    folder = copy_project(tmp_path / "project")
    stand_in(tmp_path / "files")
    rows(3, 14).to_csv(folder / "list.csv", index=False)
    small = {
        "dataset": {"source": str(tmp_path / "files"), "list": "list.csv", "images": 2},
        "diffusion": {"compile": False, "most_error": None},
        "classifier": {"least_accuracy": None},
        "sigmas": [0.5],
        "sampling": {"n0": 4, "n": 16, "chunk_size": 8, "stop": {"at_least": 8}},
        "figures": {"samples": 4, "denoised_images": 2, "vote_distribution_images": 1},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(small))
    done = run_in(folder, SNAKEMAKE, "--cores", "2", "--configfile", "config/fashion.yaml", "small.yaml")
    assert done.returncode == 0, done.stderr[-4000:]
    results = folder / "results/fashion"
    assert (results / "report.html").stat().st_size > 100_000
    counts = pd.read_parquet(results / "counts.parquet")
    assert sorted(counts["number"].unique()) == [3, 14]
    assert counts["method"].nunique() == 8
    assert all(8 <= sum(found) <= 16 for found in counts["counts_estimation"])
    assert len(pd.read_csv(results / "tables/certified_accuracy.csv")) == 10
    assert set(pd.read_csv(results / "tables/claims.csv")["claim_verdict"]) <= {"holds", "contradicted", "undecided"}


@pytest.mark.parametrize("name", ["counts", "counts_tuned"])
def test_tables_of_the_document_are_made_of_its_counts(name, tmp_path):
    experiment = understood(configured("fashion"))
    counts = pd.read_parquet(PROJECT / f"docs/fashion/{name}.parquet")
    certified = certificates(counts, **experiment.certificates())
    params = {**experiment.samples(), "bound": experiment.config["bound"], "partial_of": None}
    tables.main(certified, counts, None, tmp_path, params)
    comparisons.main(certified, counts, tmp_path, params)
    text = "".join((PROJECT / f"docs/{page}.md").read_text() for page in ("fashion", "fashion/tables"))
    for made in sorted(tmp_path.glob("*.md")):
        rows = [line for line in made.read_text().splitlines() if line.startswith("|")]
        assert len(rows) > 3
        assert "\n".join(rows) in text, made.name


def test_verdicts_of_the_document_are_made_of_its_counts(tmp_path):
    experiment, folder = understood(configured("fashion")), PROJECT / "docs/fashion"
    table = certificates(pd.read_parquet(folder / "counts.parquet"), **experiment.certificates())
    table.to_parquet(tmp_path / "certificates.parquet")
    inputs = {
        "counts": folder / "counts.parquet",
        "detail": folder / "detail.parquet",
        "certificates": tmp_path / "certificates.parquet",
        "claims": PROJECT / "config/claims.yaml",
        "published": PROJECT / "config/paper_tables.csv",
    }
    claims.main(Inputs(inputs), experiment.claims(), tmp_path / "claims")
    verdicts = (tmp_path / "claims.md").read_text().partition("\nA claim holds when")[0]
    rows = [line for line in verdicts.splitlines() if line.startswith("|")]
    assert len(rows) == 24
    assert "\n".join(rows) in (folder / "claims.md").read_text()


def test_comparisons_of_two_classifiers_are_made_of_its_counts():
    runs = [Run(pd.read_parquet(PROJECT / f"docs/fashion/{name}.parquet")) for name in ("counts", "counts_tuned")]
    text = (PROJECT / "docs/fashion/tables.md").read_text()
    made = "\n".join(compared(*runs)).strip().split("\n\n")
    assert len(made) == 10
    assert all(table in text for table in made)


def test_methods_are_compared_on_the_same_images():
    """By whatever order and numbers: 9 images, of which one method has 5 right that the other hasn't, and lacks 1."""
    own, other = np.array([1, 1, 1, 1, 1, 0, 1, 0, 0.0]), np.array([0, 0, 0, 0, 0, 1, 1, 0, 0.0])
    assert won_and_lost(own, other) == "5 : 1 (p = 0.219)"  # 2 (1 + 6) / 2^6
    assert won_and_lost(other, own) == "1 : 5 (p = 0.219)"
    assert won_and_lost(own, own) == "0 : 0 (p = 1.000)"
    counts = pd.read_parquet(PROJECT / "docs/fashion/counts.parquet")
    shuffled, first = Run(counts.sample(frac=1, random_state=0)), Run(counts)
    assert np.array_equal(shuffled.of("p_true", VOTED, 1.5), first.of("p_true", VOTED, 1.5))


class Inputs(dict):
    """As Snakemake's."""

    __getattr__ = dict.__getitem__


def test_published_weights_are_rounded_and_say_what_made_them(tmp_path):
    unet = {**TINY_UNET, "predicts_v": True}
    network = random_unet(unet)
    network.alphas_bar.copy_(torch.linspace(0.99, 0.01, 1000))
    save_weights(network, tmp_path / "weights")
    publish(tmp_path / "weights", tmp_path / "published/diffusion.safetensors", {"seed": 3})
    tensors = read_tensors(tmp_path / "published/diffusion.safetensors")
    assert {name for name, tensor in tensors.items() if tensor.dtype != torch.float16} == {"alphas_bar"}
    assert made_by(tmp_path / "published/diffusion.safetensors") == {"seed": 3}
    loaded = load_unet(tmp_path / "published/diffusion.safetensors", unet)
    assert torch.equal(loaded.alphas_bar, network.alphas_bar)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    x_t, timesteps = torch.randn(2, 1, 8, 8), torch.tensor([10.0, 900.0])
    torch.testing.assert_close(loaded(x_t, timesteps), network(x_t, timesteps), rtol=0.01, atol=0.01)


def test_every_network_of_a_configuration_is_published(monkeypatch):
    monkeypatch.chdir(PROJECT)
    found = {target: recipe for _, target, recipe in networks(trained("config/fashion.yaml"))}
    assert len(found) == 8
    assert found["weights/fashion/denoised-1.5.safetensors"]["sigma"] == 1.5
    assert found["weights/fashion/diffusion.safetensors"]["training"]["low_noise"] == 0.5
    assert len({folder for folder, _, _ in networks(trained("config/fashion.yaml"))}) == 8


PUBLISHED = PROJECT / "weights/fashion"
COMPUTED = {
    "classifier": 5.41706,
    "denoised-0.5": 1.26435,
    "denoised-1.0": 1.32294,
    "denoised-1.5": 1.09812,
    "diffusion": 0.534219,
    "noised-0.5": 2.75298,
    "noised-1.0": 1.66193,
    "noised-1.5": 1.81029,
}
"""The mean size of what each published network makes of `wave`."""


def computed(path):
    """Evaluate a published network on what needs no data."""
    wave = torch.sin(torch.arange(2 * 28 * 28) / 10).view(2, 1, 28, 28)
    with torch.inference_mode():
        if path.stem != "diffusion":
            return float(load_classifier(path)(wave).abs().mean())
        network = load_unet(path, made_by(path)["unet"])
        return float(network(wave, torch.tensor([100.0, 500.0])).abs().mean())


@pytest.mark.parametrize("name", COMPUTED)
def test_published_networks_compute_what_they_did(name):
    assert computed(PUBLISHED / f"{name}.safetensors") == pytest.approx(COMPUTED[name], rel=1e-4)


def numbers_of(text):
    """Return the numbers of the classifier's sentence and of the table's rows."""
    told = [line for line in text.splitlines() if line.startswith(("The classifier has", "| 0.", "| 1."))]
    return [float(number) for line in told for number in re.findall(r"\d+\.\d+", line)]


@needs_data
def test_published_networks_have_the_stated_held_out_errors():
    """Up to rounding, which differs between processors."""
    stated = (PROJECT / "weights/README.md").read_text().partition("## Fashion-MNIST")[2]
    found = numbers_of("\n".join(lines(PUBLISHED, *training(DATA))))
    assert len(found) == 1 + 3 * 6
    assert found == pytest.approx(numbers_of(stated), rel=0.003)
