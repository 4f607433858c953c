"""Bayes' rule for a noised image, with the training images as the prior: a reader that needs no training.

The posterior probability of class c given y = x + N(0, (2 sigma)^2 I) (in the model's units) is

    p(c | y)  ~  sum over training images i of class c of  w_i N(y; x_i, (2 sigma)^2 + h^2),

where h smooths the prior, because no image is exactly one of the training images.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri
from scipy.stats import binom
from torch import Tensor, nn
from torch.nn.functional import one_hot

from adds.data.images import training_of
from adds.diffusion.schedule import model_sigma, to_model
from adds.models.weights import WEIGHTS, describe_model, read_tensors, save_weights

logger = logging.getLogger(__name__)


class KernelReader(nn.Module):
    """Log posterior probabilities, up to a constant, from ``images`` [n, pixels], ``labels`` and ``log_weights``."""

    images: Tensor
    labels: Tensor
    log_weights: Tensor
    variance: Tensor

    def __init__(self, classes: int, **tensors: Tensor) -> None:
        super().__init__()
        self.classes = classes
        for name in ("images", "labels", "log_weights", "variance"):
            self.register_buffer(name, tensors[name])

    def forward(self, y: Tensor) -> Tensor:
        """Return logits for noised images in the model's units."""
        return class_log_sums(self.log_terms(y), self.labels, self.classes)

    def log_terms(self, y: Tensor) -> Tensor:
        """Return log w_i N(y; x_i, variance) without what doesn't depend on i: [m, n]."""
        terms = y.flatten(1) @ self.images.T - self.images.square().sum(dim=1) / 2
        return terms / self.variance + self.log_weights


def class_log_sums(terms: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return log sum_{i of class c} exp(terms_i): [m, n] to [m, classes]."""
    largest = terms.amax(dim=1, keepdim=True)
    sums = (terms - largest).exp() @ one_hot(labels, classes).to(terms.dtype)
    return sums.log() + largest


def load(folder: Path, settings: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Load what was fitted."""
    return KernelReader(settings["classes"], **read_tensors(folder / WEIGHTS)).to(device)


def obtain(order: Mapping[str, Any], folder: Path) -> None:
    """Fit the kernels to a data set's training images, for one sigma: a reader is named by what it aims at."""
    train, _ = training_of(order["dataset"])
    images, labels = to_model(torch.from_numpy(train.images)).flatten(1), torch.from_numpy(train.labels)
    crowd = Crowd(images, labels, order["classes"], order["sigma"], order["seed"])
    width = crowd.best_width()
    weights = crowd.radius_weights(width) if order["reader"] == "radius_kernel" else torch.ones(len(images))
    logger.info("the kernels' width is %g", width)
    save_weights(crowd.reader(width, weights), folder / WEIGHTS, order)
    describe_model(folder, order)


# Fitting: everything is chosen by leaving each training image out of its own prior

WIDTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Where h is looked for, in the model's units."""

DRAWS, FEW_DRAWS = 50, 16
"""Noisy versions of each training image, on which it is left out: for its own weight, and for the width of all."""

AT_ONCE = 16

N, ALPHA = 360, 0.001
"""The certificate that weights aim at: so many samples, at this level."""

ROUNDS, STEP, FLOOR = 6, 0.5, 0.05


def radius_slope(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R'(p), where R(p) is the radius (in units of sigma) that N samples are expected to certify.

    R(p) = E r(K) with K ~ Binomial(N, p) and r(k) = Phi^-1(lower bound of k of N) where that is above 1/2, else 0. So

        R'(p) = N sum_k (r(k + 1) - r(k)) P(Binomial(N - 1, p) = k),

    which is 0 far below p = 1/2, has no step there, and stays finite at p = 1.
    """
    hits = np.arange(1, N + 1)
    lower = np.concatenate([[0.0], betaincinv(hits, N - hits + 1, ALPHA)])
    radii = ndtri(np.maximum(lower, 0.5))
    chances = np.asarray(binom.pmf(np.arange(N), N - 1, p[:, None]))
    return np.asarray(N * chances @ np.diff(radii))


class Crowd:
    """Training images ([n, pixels], in the model's units), each with noisy versions of itself."""

    def __init__(self, images: Tensor, labels: Tensor, classes: int, sigma: float, seed: int) -> None:
        self.images, self.labels, self.classes, self.sigma = images, labels, classes, sigma
        normal = torch.randn(len(images), DRAWS, images.shape[1], generator=torch.Generator().manual_seed(seed))
        self.noised = images[:, None] + model_sigma(sigma) * normal

    def reader(self, width: float, weights: Tensor) -> KernelReader:
        """Return the reader with kernels of this width, and these weights of the images."""
        variance = torch.tensor(model_sigma(self.sigma) ** 2 + width**2)
        parts = {"images": self.images, "labels": self.labels, "log_weights": weights.log(), "variance": variance}
        return KernelReader(self.classes, **parts)

    def left_out(self, reader: KernelReader, draws: int = DRAWS) -> NDArray[np.float64]:
        """Return how often each image is given its own class by a reader that doesn't know it."""
        found = []
        for chosen in torch.arange(len(self.images)).split(AT_ONCE):
            terms = reader.log_terms(self.noised[chosen, :draws].flatten(0, 1)).view(len(chosen), draws, -1)
            terms[torch.arange(len(chosen)), :, chosen] = -torch.inf
            predicted = class_log_sums(terms.flatten(0, 1), self.labels, self.classes).argmax(dim=1)
            right = predicted.view(len(chosen), draws) == self.labels[chosen][:, None]
            found.append(right.double().mean(dim=1).numpy())
        return np.concatenate(found)

    def best_width(self) -> float:
        """Return the width whose readers are right most often about images that they don't know."""
        equal = torch.ones(len(self.images))
        return max(WIDTHS, key=lambda width: float(self.left_out(self.reader(width, equal), FEW_DRAWS).mean()))

    def radius_weights(self, width: float) -> Tensor:
        """Weight images by what their class's probability is worth, so that the reader aims at the mean radius.

        The mean of R(p_i) grows by R'(p_i) for each bit of p_i: the best reader for it is Bayes' rule with weights
        w_i = R'(p_i). All at once that overshoots, because who is well off gains most, so w_i = sqrt(R'(p_i) + FLOOR)
        with p_i that of the image left out, approached in ROUNDS steps of w <- (1 - STEP) w + STEP w_i / mean(w_i).
        """
        weights = torch.ones(len(self.images))
        for _ in range(ROUNDS):
            wanted = np.sqrt(radius_slope(self.left_out(self.reader(width, weights))) + FLOOR)
            weights = (1 - STEP) * weights + STEP * torch.from_numpy(wanted / wanted.mean()).float()
        return weights
