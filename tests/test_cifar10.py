"""CIFAR-10 from a stand-in of its binary archive, and a network that sees rescaled timesteps."""

import tarfile

import numpy as np
import pytest
import torch
from adds.listing import class_names

from adds.data.cifar10 import RECORD, TEST_BATCH, prepare_cifar10
from adds.data.images import load_image
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule
from tests.test_subset import archive


def cifar_archive(path, images=200, labels=None):
    """Write the archive with random images, of the classes 0, 1, ..., 9, 0, ... unless told otherwise."""
    records = np.random.default_rng(0).integers(0, 256, (images, RECORD), dtype=np.uint8)
    records[:, 0] = np.arange(images) % 10 if labels is None else labels
    batches = {"cifar-10-batches-bin/data_batch_1.bin": b"x", TEST_BATCH: records.tobytes()}
    archive(path, batches, contents=list(batches.values()).__getitem__, mode="w:gz")
    return records


@pytest.fixture
def classes():
    return class_names("cifar10")


def test_every_nth_image_with_its_pixels(tmp_path, classes):
    records = cifar_archive(tmp_path / "cifar.tar.gz")
    table = prepare_cifar10(tmp_path / "cifar.tar.gz", 7, classes, tmp_path / "images")
    assert list(table["index"]) == list(range(0, 200, 7))
    assert table.loc[1].to_dict() | {"file": ""} == {"index": 7, "file": "", "label": 7, "class_name": "horse"}
    pixels = (load_image(table["file"][1], size=32) * 255).round().astype(np.uint8)
    assert np.array_equal(pixels.ravel(), records[7, 1:])


def test_other_files_are_refused(tmp_path, classes):
    archive = tmp_path / "cifar.tar.gz"
    archive.write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        prepare_cifar10(archive, 1, classes, tmp_path / "images")
    with tarfile.open(archive, "w:gz"):
        pass
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        prepare_cifar10(archive, 1, classes, tmp_path / "images")
    cifar_archive(archive, images=3, labels=[1, 200, 2])
    with pytest.raises(ValueError, match="image 1 has label 200"):
        prepare_cifar10(archive, 1, classes, tmp_path / "images")
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not CIFAR-10's binary archive"):
        prepare_cifar10(archive, 1, classes, tmp_path / "images")


def test_the_network_sees_timesteps_as_if_there_were_1000():
    """As guided_diffusion's rescale_timesteps: t x 1000 / T; noise and coefficients keep the true timestep."""
    schedule = Schedule.named("cosine", 4000)
    seen = []

    def network(x_t, timesteps):
        seen.append(timesteps)
        return torch.zeros(len(x_t), 2, 8, 8)

    grid = schedule.respaced(range(199, 4000, 200))
    denoiser = Denoiser(network, schedule, batch_size=2, timestep_scale=1000 / len(schedule))
    denoiser.predict(torch.zeros(2, 1, 8, 8), grid, 3)
    assert grid.timesteps[3] == 799
    assert seen[0].tolist() == [199.75, 199.75]
