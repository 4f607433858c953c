"""Training still makes networks like the published ones (weights/README.md)."""

import numpy as np
import pytest
import torch

from adds.data.digits import FOR_CHOICES, load_split
from adds.models import training
from adds.models.classifiers.small import SmallClassifier
from adds.models.embedded import embedded_pipeline
from adds.models.training import (
    CHECKPOINT,
    TrainingSettings,
    accuracy,
    finish,
    held_out_mse,
    train_classifier,
    train_diffusion,
    training_process,
)
from adds.models.weights import made_by
from tests.conftest import TINY_UNET
from tests.workflow import PROJECT

PUBLISHED = PROJECT / "weights/digits"
rate = training._learning_rate


@pytest.fixture(scope="module")
def digits():
    train, test = load_split()
    return train, test[np.arange(FOR_CHOICES)]


def trained_diffusion(digits, **changes):
    recipe = made_by(PUBLISHED / "diffusion.safetensors")
    settings = TrainingSettings(**{**recipe["training"], **changes})
    parts = {key: recipe[key] for key in ("unet", "schedule", "timesteps", "seed")}
    return train_diffusion(*digits, **parts, settings=settings)


def test_the_classifier_is_trained_to_the_published_ones_accuracy(digits):
    recipe = made_by(PUBLISHED / "classifier.safetensors")
    settings = TrainingSettings(**recipe["training"])
    network, log = train_classifier(*digits, build=SmallClassifier, settings=settings, seed=recipe["seed"])
    published = accuracy(embedded_pipeline(PUBLISHED).classifier.classifier, digits[1])
    assert accuracy(network, digits[1]) == pytest.approx(published, abs=0.01)
    assert log[-1]["held_out_accuracy"] == accuracy(network, digits[1])


def test_the_diffusion_model_learns(digits):
    """A hundred steps: far from done, and far from nothing (an error of 1)."""
    _, log = trained_diffusion(digits, steps=100, learning_rate=0.008)
    assert log[-1]["held_out_mse"] < 0.2


class KilledError(Exception):
    pass


def killed_at(call):
    """Return a stand-in for a held-out error that is 0, and stops the training when it is asked for so many times."""
    asked = []

    def measure(*_, **__):
        asked.append(0)
        if len(asked) == call:
            raise KilledError
        return 0.0

    return measure


UNET = {**TINY_UNET, "image_size": 8, "space_to_channels": 2, "predicts_v": True}


def tiny_diffusion(digits, checkpoint=None, **changes):
    settings = TrainingSettings(**{"steps": 9, "batch_size": 4, "learning_rate": 0.01, "low_noise": 0.5, **changes})
    parts = {"unet": UNET, "schedule": "linear", "timesteps": 1000, "seed": 0}
    return train_diffusion(*digits, **parts, settings=settings, checkpoint=checkpoint)


def tiny_classifier(digits, checkpoint=None):
    settings = TrainingSettings(9, 4, 0.01)
    return train_classifier(*digits, build=SmallClassifier, settings=settings, seed=0, checkpoint=checkpoint)


@pytest.mark.parametrize(("train", "measured"), [(tiny_diffusion, "held_out_mse"), (tiny_classifier, "accuracy")])
def test_a_training_that_was_killed_goes_on_as_if_it_hadnt_been(digits, train, measured, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "LOG_EVERY", 3)
    monkeypatch.setattr(training, measured, killed_at(None))
    expected, log = train(digits)
    checkpoint = tmp_path / "checkpoint.pt"
    monkeypatch.setattr(training, measured, killed_at(3))
    with pytest.raises(KilledError):
        train(digits, checkpoint)
    assert torch.load(checkpoint, weights_only=True)["step"] == 6
    torch.manual_seed(12)  # what happens in between doesn't matter
    taken = []
    monkeypatch.setattr(training, "_learning_rate", lambda step, _: taken.append(step) or rate(step, _))
    monkeypatch.setattr(training, measured, killed_at(None))
    found, log_again = train(digits, checkpoint)
    assert taken == [6, 7, 8]
    assert log_again == log
    assert [record["step"] for record in log] == [3, 6, 9]
    for name, tensor in expected.state_dict().items():
        assert torch.equal(tensor, found.state_dict()[name]), name


def test_a_finished_training_leaves_weights_and_no_checkpoint(digits, tmp_path):
    network, _ = tiny_classifier(digits, tmp_path / CHECKPOINT)
    assert (tmp_path / CHECKPOINT).exists()
    finish(network, {"seed": 0}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["description.json", "weights"]
    assert made_by(tmp_path / "weights") == {"seed": 0}


def test_a_network_of_v_learns_the_error_of_v_more_often_at_low_noise(digits, monkeypatch):
    """The noise's error is abar of v's: dividing by it, both networks' losses are told in their own terms."""
    seen = []

    class Process:
        num_timesteps = 1000
        alphas_cumprod = training_process("linear", 1000).alphas_cumprod

        def training_losses(self, network, _images, t):
            seen.append(t)
            error = torch.from_numpy(self.alphas_cumprod)[t].float()
            return {"mse": error, "vb": 0 * network(torch.zeros(1, 1, 8, 8), t[:1]).mean()}

    monkeypatch.setattr(training, "training_process", lambda *_: Process())
    monkeypatch.setattr(training, "held_out_mse", lambda *_: 0.0)
    trained, log = tiny_diffusion(digits, steps=20, batch_size=500)
    assert log[-1]["loss"] == pytest.approx(1.0)
    abar = Process.alphas_cumprod
    assert torch.equal(trained.alphas_bar, torch.from_numpy(abar).float())
    expected = (np.arange(1000) * abar**0.5).sum() / (abar**0.5).sum()
    assert float(torch.cat(seen).double().mean()) == pytest.approx(expected, rel=0.05)
    seen.clear()
    tiny_diffusion(digits, steps=20, batch_size=500, low_noise=0.0)
    assert float(torch.cat(seen).double().mean()) == pytest.approx(499.5, rel=0.05)


@pytest.mark.slow
def test_the_diffusion_model_is_trained_to_the_published_ones_error(digits):
    """Ten to twenty-five minutes of one core."""
    network, _ = trained_diffusion(digits)
    process = training_process("linear", 1000)
    published = held_out_mse(embedded_pipeline(PUBLISHED).denoiser.network, process, digits[1])
    assert held_out_mse(network, process, digits[1]) == pytest.approx(published, rel=0.03)
