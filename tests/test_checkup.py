"""The test of the networks before anything is sampled: what is wrong is noticed, what is right never is."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from adds.data.digits import load_split
from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule
from adds.models.embedded import embedded_pipeline
from adds.models.unet import build_unet, untrained_unet
from adds.models.weights import made_by
from adds.monitor.checkup import SIGMAS, Accuracy, accuracy_on, denoising_of
from adds.results.accuracy import interval
from tests.test_experiment import configured

WEIGHTS = Path(__file__).parents[1] / "weights/digits"
UNET = made_by(WEIGHTS / "diffusion.safetensors")["unet"]
CPU = torch.device("cpu")
LEAST, MOST = (
    configured("digits")[name][key] for name, key in (("classifier", "least_accuracy"), ("diffusion", "most_error"))
)


@pytest.fixture(scope="module")
def pipeline():
    return embedded_pipeline(WEIGHTS)


@pytest.fixture(scope="module")
def pictures():
    _, test = load_split()
    rows = zip(test.images[:250], test.numbers, test.labels, strict=False)
    return [Picture.of(pixels, int(number), int(label)) for pixels, number, label in rows]


def problems(denoiser, pictures):
    return [denoising_of(denoiser, pictures, sigma).problem(MOST) for sigma in SIGMAS]


def test_the_published_networks_pass(pipeline, pictures):
    found = accuracy_on(pipeline.classifier, pictures, CPU)
    assert (found.images, found.right) == (250, 246)
    assert (found.low, found.high) == interval(246, 250)
    assert found.problem(LEAST) is None
    assert problems(pipeline.denoiser, pictures[:64]) == [None] * 3


def test_permuted_classes_are_noticed(pipeline, pictures):
    permuted = [dataclasses.replace(picture, label=(picture.label + 1) % 10) for picture in pictures]
    text = accuracy_on(pipeline.classifier, permuted, CPU).problem(LEAST)
    assert text.startswith("the classifier has 0.0% [0.0, 1.5] of 250 clean images right, below")
    assert "classifier.least_accuracy = 0.8: are the classes numbered as in dataset.list" in text
    assert "\n" not in text


def test_pixels_in_another_range_are_noticed(pipeline, pictures):
    negative = [dataclasses.replace(picture, pixels=1 - picture.pixels) for picture in pictures]
    assert accuracy_on(pipeline.classifier, negative, CPU).problem(LEAST)


def test_too_few_images_are_no_verdict(pipeline, pictures):
    """Two of five right may well be chance where eight of ten are; none of five can't."""
    assert Accuracy(5, 2, 0.4, *interval(2, 5)).problem(0.8) is None
    assert Accuracy(5, 0, 0.0, *interval(0, 5)).problem(0.8)
    assert Accuracy(250, 0, 0.0, *interval(0, 250)).problem(None) is None
    untrained = Denoiser(untrained_unet(UNET), pipeline.denoiser.schedule)
    assert problems(untrained, pictures[:1]) == [None] * 3
    assert denoising_of(untrained, pictures[:1], 0.5).low is None


def test_sound_networks_are_never_refused_by_chance(pipeline, pictures):
    """Of any few images, however hard: the floor is generous, and few images have wide intervals."""
    right = np.array([accuracy_on(pipeline.classifier, [picture], CPU).right for picture in pictures], bool)
    rng = np.random.default_rng(0)
    for images in (1, 2, 3, 5, 10, 24):
        for _ in range(200):
            hits = int(right[rng.choice(250, images, replace=False)].sum())
            assert Accuracy(images, hits, hits / images, *interval(hits, images)).problem(LEAST) is None


def test_images_without_labels_have_no_accuracy(pipeline, pictures):
    assert accuracy_on(pipeline.classifier, [dataclasses.replace(pictures[0], label=None)], CPU) is None


@pytest.mark.parametrize("wrong", ["random", "untrained", "schedule", "scale of timesteps", "sign"])
def test_wrong_denoisers_are_noticed(pipeline, pictures, wrong):
    right, schedule = pipeline.denoiser.network, pipeline.denoiser.schedule
    sign = torch.tensor([-1.0, 1.0]).view(1, 2, 1, 1)
    denoisers = {
        "random": lambda: Denoiser(untrained_unet(UNET), schedule),
        "untrained": lambda: Denoiser(build_unet(UNET).eval().requires_grad_(False), schedule),
        "schedule": lambda: Denoiser(right, Schedule.named("cosine", 1000)),
        "scale of timesteps": lambda: Denoiser(lambda states, timesteps: right(states, timesteps / 4), schedule),
        "sign": lambda: Denoiser(lambda states, timesteps: sign * right(states, timesteps), schedule),
    }
    texts = problems(denoisers[wrong](), pictures[:64])
    assert all(texts)
    assert (
        "of the squared error of 64 noised images, above diffusion.most_error = 0.5: are these the weights" in texts[0]
    )
    assert "\n" not in texts[0]
