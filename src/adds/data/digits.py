"""The embedded experiment's data: scikit-learn's handwritten digits, 8 x 8, ten classes, no download."""

from pathlib import Path

import numpy as np
import pandas as pd

from adds.data.images import Examples, Form, Pixels, check_listed

SPLIT_SEED = 0
TEST_SIZE = 400
FOR_CHOICES = 220
"""The first so many test digits are for choices (how long to train, which rule to use); results rest on the others."""


def load_all() -> Examples:
    """Return all 1,797 digits."""
    from sklearn.datasets import load_digits  # takes a second, which only this function should cost

    data = load_digits()
    images = (data.images / 16.0).astype(np.float32)[:, None]
    return Examples(images, data.target.astype(np.int64), np.arange(len(images)))


def load_split() -> tuple[Examples, Examples]:
    """Return (training, test). The split is fixed; models never see the test images, which config/digits.csv lists."""
    digits = load_all()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digits))
    return digits[order[TEST_SIZE:]], digits[order[:TEST_SIZE]]


def training(_source: Path | None = None) -> tuple[Examples, Examples]:
    """Return the images to train on, and those that choices rest on."""
    train, test = load_split()
    return train, test[np.arange(FOR_CHOICES)]


def read(_source: Path | None, rows: pd.DataFrame, _form: Form) -> Pixels:
    """Return the digits with the listed numbers."""
    digits = load_all()
    check_listed(rows, digits.labels, "scikit-learn's digits")
    return digits[rows["number"].to_numpy()].images
