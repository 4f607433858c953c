"""CIFAR-10 from a stand-in of its binary archive, and a network that sees rescaled timesteps."""

import tarfile

import numpy as np
import pandas as pd
import pytest
import torch
from scripts import draw_samples

from adds.data.cifar10 import RECORD, TEST_BATCH, read
from adds.data.images import Form, class_names
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule
from tests.test_imagenet import CONFIG, archive

FORM = Form(32, 3)


def cifar_archive(path, images=200, labels=None):
    """Write the archive with random images, of the classes 0, 1, ..., 9, 0, ... unless told otherwise."""
    records = np.random.default_rng(0).integers(0, 256, (images, RECORD), dtype=np.uint8)
    records[:, 0] = np.arange(images) % 10 if labels is None else labels
    batches = {"cifar-10-batches-bin/data_batch_1.bin": b"x", TEST_BATCH: records.tobytes()}
    archive(path, batches, contents=list(batches.values()).__getitem__, mode="w:gz")
    return records


def rows(*numbers):
    return pd.DataFrame({"number": numbers, "label": [number % 10 for number in numbers]})


def test_numbers_are_places_in_the_test_batch(tmp_path):
    records = cifar_archive(tmp_path / "cifar.tar.gz")
    found = read(tmp_path / "cifar.tar.gz", rows(7, 199, 0), FORM)
    assert found.shape == (3, 3, 32, 32)
    assert found.dtype == np.uint8
    assert np.array_equal(found.reshape(3, -1), records[[7, 199, 0], 1:])


def test_classes_have_names():
    names = class_names(CONFIG / "cifar10_classes.csv")
    assert list(names) == list(range(10))
    assert names[7] == "horse"


def test_the_shipped_list_is_every_20th_of_the_test_batch():
    listed = pd.read_csv(CONFIG / "cifar10_every_20th.csv")
    assert list(listed["number"]) == list(range(0, 10_000, 20))
    assert set(listed["label"]) == set(range(10))


def test_other_lists_are_refused(tmp_path):
    path = tmp_path / "cifar.tar.gz"
    cifar_archive(path)
    with pytest.raises(ValueError, match="image 7 has label 7, the list of images has 3"):
        read(path, rows(1, 7, 8).assign(label=[1, 3, 8]), FORM)
    for number in (200, -1):
        with pytest.raises(ValueError, match=rf"cifar\.tar\.gz has no image {number}: it has 200"):
            read(path, rows(1, number), FORM)
    with pytest.raises(ValueError, match="CIFAR-10 is 32 x 32"):
        read(path, rows(1), Form(64, 3))
    with pytest.raises(ValueError, match="needs a source"):
        read(None, rows(1), FORM)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        read(path, rows(1), FORM)
    with tarfile.open(path, "w:gz"):
        pass
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        read(path, rows(1), FORM)
    archive(path, [TEST_BATCH], contents=lambda _: bytes(RECORD - 1), mode="w:gz")
    with pytest.raises(ValueError, match=f"{TEST_BATCH} has {RECORD - 1} bytes"):
        read(path, rows(0), FORM)
    cifar_archive(path, images=3, labels=[1, 200, 2])
    with pytest.raises(ValueError, match="image 1 has label 200"):
        read(path, rows(1), FORM)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        read(path, rows(1), FORM)
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        read(tmp_path / "nowhere.tar.gz", rows(1), FORM)


@pytest.mark.parametrize("place", [0.25, 0.5, 0.75])
def test_a_damaged_archive_is_refused(tmp_path, place):
    path = tmp_path / "cifar.tar.gz"
    cifar_archive(path)
    damaged = bytearray(path.read_bytes())
    damaged[int(place * len(damaged))] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        read(path, rows(*range(200)), FORM)


def test_the_network_sees_timesteps_as_if_there_were_1000():
    """As guided_diffusion's rescale_timesteps: t x 1000 / T; noise and coefficients keep the true timestep."""
    schedule = Schedule.named("cosine", 4000)
    seen = []

    def network(x_t, timesteps):
        seen.append(timesteps)
        return torch.zeros(len(x_t), 2, 8, 8)

    grid = schedule.respaced(range(199, 4000, 200))
    denoiser = Denoiser(network, schedule, batch_size=2, rescale_timesteps=True)
    denoiser.predict(torch.zeros(2, 1, 8, 8), grid, 3)
    assert grid.timesteps[3] == 799
    assert seen[0].tolist() == [199.75, 199.75]


def test_its_own_samples_are_drawn_with_these_timesteps_too(tmp_path, monkeypatch):
    seen = []

    def network(x_t, timesteps):
        seen.extend(timesteps.tolist())
        return torch.zeros(len(x_t), 2, 8, 8)

    monkeypatch.setattr("adds.models.pipeline.load_diffusion", lambda *_: network)
    process = {"schedule": "cosine", "timesteps": 4000, "rescale_timesteps": True, "steps": 4}
    params = {"diffusion": {**process, "unet": {"in_channels": 1, "image_size": 8}}, "samples": 2, "seed": 0}
    machine = {"device": "cpu", "threads": 1, "batch_size": {"diffusion": 2}}
    draw_samples.main(params, machine, "weights", str(tmp_path / "samples.npy"))
    assert seen == [999.75, 999.75, 749.75, 749.75, 499.75, 499.75, 249.75, 249.75]
    assert np.load(tmp_path / "samples.npy").shape == (2, 1, 8, 8)
