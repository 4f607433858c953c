"""Bayes' rule with the training images as the prior: its posterior, its width and its weights."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binom, multivariate_normal, norm

from adds.certificates.binomial import clopper_pearson_lower
from adds.data.digits import load_split
from adds.models.classifiers import kernel
from adds.models.classifiers.kernel import ALPHA, Crowd, KernelReader, N, class_log_sums, radius_slope


def small_reader(seed=0, images=7, pixels=4, classes=3):
    generator = torch.Generator().manual_seed(seed)
    return KernelReader(
        classes,
        images=torch.randn(images, pixels, generator=generator),
        labels=torch.arange(images) % classes,
        log_weights=torch.rand(images, generator=generator).log(),
        variance=torch.tensor(0.7),
    )


def test_the_posterior_is_bayes_rule():
    """sum of w_i N(y; x_i, v I) over the images of each class, normalised, by scipy's density."""
    reader = small_reader()
    y = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    found = reader(y.view(5, 1, 2, 2)).softmax(dim=1)
    density = [
        [multivariate_normal(image, 0.7 * np.eye(4)).pdf(row) * np.exp(weight) for row in y.numpy()]
        for image, weight in zip(reader.images.numpy(), reader.log_weights.numpy(), strict=True)
    ]
    sums = np.stack([np.sum(np.array(density)[reader.labels.numpy() == label], axis=0) for label in range(3)], axis=1)
    np.testing.assert_allclose(found.numpy(), sums / sums.sum(axis=1, keepdims=True), rtol=1e-4)


def test_far_classes_have_no_probability_and_no_nan():
    terms = torch.tensor([[0.0, -1e4, -1e4], [-1e4, 3e3, 0.0]])
    shares = class_log_sums(terms, torch.tensor([0, 1, 2]), 3).softmax(dim=1)
    assert shares.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_the_slope_is_the_derivative_of_the_expected_radius():
    lower = clopper_pearson_lower(np.arange(N + 1), N, ALPHA)
    radii = norm.ppf(np.maximum(lower, 0.5))

    def expected(p):
        return float(binom.pmf(np.arange(N + 1), N, p) @ radii)

    for p in (0.3, 0.55, 0.8, 0.97):
        by_difference = (expected(p + 1e-5) - expected(p - 1e-5)) / 2e-5
        assert float(radius_slope(np.array([p]))[0]) == pytest.approx(by_difference, rel=1e-4, abs=1e-8)
    assert np.isfinite(radius_slope(np.array([0.0, 1.0]))).all()


@pytest.fixture(scope="module")
def crowd():
    train, _ = load_split()
    images = torch.from_numpy(train.images[:300]).flatten(1) * 2 - 1
    return Crowd(images, torch.from_numpy(train.labels[:300]), 10, sigma=0.6, seed=0)


def test_an_image_is_left_out_of_its_own_prior(crowd):
    """With next to no noise every image is its own best match: it would be right always if it weren't left out."""
    tight = Crowd(crowd.images, crowd.labels, 10, sigma=0.001, seed=0)
    reader = tight.reader(0.01, torch.ones(300))
    assert (reader(tight.images.view(-1, 1, 8, 8)).argmax(1) == tight.labels).all()
    nearest = torch.cdist(tight.images, tight.images).fill_diagonal_(torch.inf).argmin(dim=1)
    expected = (tight.labels[nearest] == tight.labels).double().numpy()
    assert expected.mean() < 1
    assert np.mean(tight.left_out(reader).round() != expected) < 0.01, "a tie or so by the noise"


def test_weights_are_for_those_whose_radius_can_grow(crowd):
    """And they raise the mean radius of images that the reader doesn't know, which plain Bayes' rule doesn't aim at."""
    weights = crowd.radius_weights(0.7)
    plain = crowd.left_out(crowd.reader(0.7, torch.ones(300)))
    assert weights[plain > 0.9].mean() > 2 * weights[plain < 0.3].mean()

    def mean_radius(probabilities):
        return norm.ppf(np.clip(probabilities, 0.5, 1 - 0.5 / N)).mean()

    other = Crowd(crowd.images, crowd.labels, 10, sigma=0.6, seed=1)  # other noise than the weights were made with
    found = {name: other.left_out(other.reader(0.7, w)) for name, w in (("for p", torch.ones(300)), ("for r", weights))}
    assert mean_radius(found["for r"]) > 1.02 * mean_radius(found["for p"])
    assert found["for r"].mean() < found["for p"].mean(), "nothing beats Bayes' rule in the probability itself"


def test_fitted_kernels_are_loaded_as_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr(Crowd, "best_width", lambda _: 0.5)
    kernel.obtain({"dataset": "digits", "classes": 10, "sigma": 0.6, "seed": 0, "reader": "kernel"}, tmp_path)
    loaded = kernel.load(tmp_path, {"classes": 10}, torch.device("cpu"))
    assert float(loaded.variance) == pytest.approx(1.2**2 + 0.5**2)
    assert len(loaded.images) == 1397
    assert "sha256" in json.loads((tmp_path / "description.json").read_text())
    _, test = load_split()
    shown = torch.from_numpy(test.images) * 2 - 1
    right = loaded(shown).argmax(dim=1) == torch.from_numpy(test.labels)
    assert right.float().mean() > 0.9


def test_the_width_is_the_best_of_those_that_are_tried(crowd):
    tried = {width: crowd.left_out(crowd.reader(width, torch.ones(300)), 16).mean() for width in kernel.WIDTHS}
    assert crowd.best_width() == max(tried, key=tried.get)
