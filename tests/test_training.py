"""Training still makes networks like the published ones (weights/README.md)."""

import numpy as np
import pytest

from adds.data.digits import FOR_CHOICES, load_split
from adds.models.embedded import embedded_pipeline
from adds.models.training import (
    TrainingSettings,
    accuracy,
    held_out_mse,
    train_classifier,
    train_diffusion,
    training_process,
)
from adds.models.weights import made_by
from tests.workflow import PROJECT

PUBLISHED = PROJECT / "weights/digits"


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
    network, log = train_classifier(*digits, settings=TrainingSettings(**recipe["training"]), seed=recipe["seed"])
    published = accuracy(embedded_pipeline(PUBLISHED).classifier.classifier, digits[1])
    assert accuracy(network, digits[1]) == pytest.approx(published, abs=0.01)
    assert log[-1]["held_out_accuracy"] == accuracy(network, digits[1])


def test_the_diffusion_model_learns(digits):
    """A hundred steps: far from done, and far from nothing (an error of 1)."""
    _, log = trained_diffusion(digits, steps=100, learning_rate=0.008)
    assert log[-1]["held_out_mse"] < 0.2


@pytest.mark.slow
def test_the_diffusion_model_is_trained_to_the_published_ones_error(digits):
    """Ten to twenty-five minutes of one core."""
    network, _ = trained_diffusion(digits)
    process = training_process("linear", 1000)
    published = held_out_mse(embedded_pipeline(PUBLISHED).denoiser.network, process, digits[1])
    assert held_out_mse(network, process, digits[1]) == pytest.approx(published, rel=0.03)
