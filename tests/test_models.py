"""Loading networks: what is right loads, what is wrong is named."""

import json
import os
import pickle

import pytest
import torch
from torch import nn

from adds.diffusion.denoiser import Denoiser
from adds.machine.devices import CPU, claim_device
from adds.machine.gpus import VISIBLE
from adds.models.pipeline import BatchedClassifier
from adds.models.unet import load_unet
from adds.models.weights import (
    DESCRIPTION,
    WEIGHTS,
    checksums,
    describe_model,
    load_weights,
    read_tensors,
    save_weights,
    sha256_of,
)
from tests.conftest import TINY_UNET, random_unet


def save_torch(network, path):
    torch.save(network.state_dict(), path)


FORMATS = pytest.mark.parametrize("save", [save_torch, save_weights], ids=["torch's format", "safetensors"])


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "unet.pt"
    save_torch(random_unet(), path)
    return path


@FORMATS
def test_a_checkpoint_loads_whole(tmp_path, save):
    save(random_unet(), tmp_path / WEIGHTS)
    x, t = torch.randn(2, 1, 8, 8), torch.tensor([3, 500])
    loaded = load_unet(tmp_path / WEIGHTS, TINY_UNET)
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in random_unet().state_dict().items())
    assert float((loaded(x, t) - random_unet()(x, t)).abs().max()) < 1e-5  # attention is fused


def test_the_format_is_told_by_the_content(tmp_path):
    network = nn.Linear(2, 3)
    save_weights(network, tmp_path / "misnamed.pt")
    save_torch(network, tmp_path / WEIGHTS)
    for name in ("misnamed.pt", WEIGHTS):
        tensors = read_tensors(tmp_path / name)
        assert tensors.keys() == {"weight", "bias"}
        assert torch.equal(tensors["weight"], network.weight)


def test_weights_are_saved_whatever_their_memory_format(tmp_path):
    network = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    save_weights(network, tmp_path / WEIGHTS)
    assert torch.equal(read_tensors(tmp_path / WEIGHTS)["weight"], network.weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("out.2.bias"), r"out\.2\.bias is missing"),
        (lambda state: state.update(extra=torch.zeros(1)), "extra is not expected"),
        (
            lambda state: state.update({"out.2.bias": torch.zeros(6)}),
            r"out\.2\.bias has shape \(6,\) instead of \(2,\)",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(checkpoint, change, message):
    state = torch.load(checkpoint, weights_only=True)
    change(state)
    torch.save(state, checkpoint)
    with pytest.raises(ValueError, match=message):
        load_unet(checkpoint, TINY_UNET)


class Bomb:
    def __reduce__(self):
        return (print, ("a pickle ran code",))


def save_bomb(path, kind):
    """Write a file that runs code when it is unpickled: as torch saves, as it once did, or as a bare pickle."""
    if kind == "pickle":
        path.write_bytes(pickle.dumps({"weight": Bomb()}))
    else:
        torch.save({"weight": Bomb()}, path, _use_new_zipfile_serialization=kind == "zip")
    return path


BOMBS = pytest.mark.parametrize("kind", ["zip", "legacy", "pickle"])


@BOMBS
def test_checkpoints_can_not_run_code(tmp_path, capsys, kind):
    with pytest.raises(ValueError, match=r"bomb\.pt is not a checkpoint"):
        load_weights(nn.Linear(1, 1), save_bomb(tmp_path / "bomb.pt", kind))
    assert "a pickle ran code" not in capsys.readouterr().out


def test_other_files_are_not_checkpoints(tmp_path):
    path, listed = tmp_path / "garbage.pt", tmp_path / "list.pt"
    save_weights(nn.Linear(8, 8), path)
    for garbage in (pickle.dumps("hello") + b"garbage", b"", b"P", b"PK", b"PK garbage", path.read_bytes()[:-1]):
        path.write_bytes(garbage)
        with pytest.raises(ValueError, match=r"garbage\.pt is not a checkpoint"):
            load_weights(nn.Linear(8, 8), path)
    for content in ([torch.zeros(1)], {"state_dict": {"weight": torch.zeros(1)}}, torch.zeros(1)):
        torch.save(content, listed)
        with pytest.raises(ValueError, match="not a state dict"):
            load_weights(nn.Linear(1, 1), listed)
    with pytest.raises(FileNotFoundError):
        load_weights(nn.Linear(1, 1), tmp_path / "missing.pt")


def test_broken_networks_are_noticed(schedule):
    class Nan:
        def __call__(self, x_t, _):
            return torch.full((len(x_t), 2, 8, 8), float("nan"))

    grid = schedule.respaced([49, 99])
    with pytest.raises(FloatingPointError, match="NaN or infinity at timestep 99"):
        Denoiser(Nan(), schedule).predict(torch.zeros(1, 1, 8, 8), grid, 1)
    classifier = BatchedClassifier(lambda images: torch.full((len(images), 10), float("nan")), classes=10)
    with pytest.raises(FloatingPointError, match="NaN logits"):
        classifier.predict(torch.zeros(3, 1, 8, 8))
    classifier = BatchedClassifier(lambda images: torch.zeros(len(images), 7), classes=10)
    with pytest.raises(ValueError, match=r"logits of shape \(3, 7\)"):
        classifier.predict(torch.zeros(3, 1, 8, 8))
    with pytest.raises(ValueError, match="batch_size is 0"):
        Denoiser(Nan(), schedule, batch_size=0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        BatchedClassifier(nn.Identity(), classes=2, batch_size=0)


def test_weights_of_half_precision_are_widened(checkpoint):
    state = {name: value.half() for name, value in torch.load(checkpoint, weights_only=True).items()}
    torch.save(state, checkpoint)
    assert {value.dtype for value in load_unet(checkpoint, TINY_UNET).state_dict().values()} == {torch.float32}


def test_a_model_that_was_exchanged_is_refused(tmp_path):
    weights = tmp_path / WEIGHTS
    weights.write_bytes(b"one network")
    describe_model(tmp_path, {"name": "one", "mean": [0.5]})
    stored = checksums(tmp_path)
    assert stored == {"sha256": sha256_of(weights), "mean": [0.5]}
    assert json.loads((tmp_path / DESCRIPTION).read_text())["name"] == "one"
    os.utime(weights, ns=(0, 0))  # a new time alone doesn't matter
    assert checksums(tmp_path) == stored
    weights.write_bytes(b"two network")
    with pytest.raises(ValueError, match=r"weights is not the file that .*description\.json describes any more"):
        checksums(tmp_path)


def test_a_file_that_is_linked_to_is_the_one_that_counts(tmp_path):
    mine = tmp_path / "mine.pt"
    mine.write_bytes(b"one network")
    (tmp_path / WEIGHTS).symlink_to(mine)
    describe_model(tmp_path, {})
    assert checksums(tmp_path) == {"sha256": sha256_of(mine)}
    mine.write_bytes(b"another network")
    with pytest.raises(ValueError, match="describes any more"):
        checksums(tmp_path)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv(VISIBLE, "")


@pytest.mark.usefixtures("no_gpu")
def test_no_gpu_is_said_plainly():
    assert claim_device({"device": "cpu", "jobs_per_gpu": 1}) == CPU
    for device in ("auto", "cuda"):
        with pytest.raises(ValueError, match=f"device is '{device}', but this machine has no GPU"):
            claim_device({"device": device, "jobs_per_gpu": 1})


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_that_torch_can_not_use_is_an_error(monkeypatch):
    monkeypatch.setattr("adds.machine.devices.take_gpu", lambda jobs_per_gpu: f"GPU for {jobs_per_gpu}")
    with pytest.raises(ValueError, match="no GPU that torch can use: run this"):
        claim_device({"device": "auto", "jobs_per_gpu": 1})
    monkeypatch.setattr("adds.machine.devices.has_gpu", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ValueError, match=r"can use \(CUDA_VISIBLE_DEVICES is set to nothing, which hides"):
        claim_device({"device": "auto", "jobs_per_gpu": 1})
    monkeypatch.delenv(VISIBLE)
    with pytest.raises(ValueError, match=r"can use \(a driver shows one, but torch .* is built for CPUs: install a"):
        claim_device({"device": "auto", "jobs_per_gpu": 1})
    monkeypatch.setattr(torch.version, "hip", "7.1")
    with pytest.raises(ValueError, match=r"but torch .* is built for ROCm 7\.1: install a"):
        claim_device({"device": "auto", "jobs_per_gpu": 1})
    assert claim_device({"device": "cpu", "jobs_per_gpu": 1}) == CPU
