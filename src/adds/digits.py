"""The embedded experiment's data: scikit-learn's handwritten digits, 8 x 8, ten classes, no download."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from adds.listing import COLUMNS

SPLIT_SEED = 0
TEST_SIZE = 400


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 8, 8] in [0, 1] with their labels and their numbers in scikit-learn's order."""

    images: Tensor
    labels: Tensor
    indices: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def load_split() -> tuple[Digits, Digits]:
    """Return (training, test). The split is fixed; models never see the test images."""
    from sklearn.datasets import load_digits  # takes a second, which only this function should cost

    data = load_digits()
    images = torch.tensor(data.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(data.target, dtype=torch.long)
    order = torch.tensor(np.random.default_rng(SPLIT_SEED).permutation(len(labels)))
    test, train = order[:TEST_SIZE], order[TEST_SIZE:]
    return (
        Digits(images[train], labels[train], train),
        Digits(images[test], labels[test], test),
    )


def prepare_digits(folder: Path | str) -> pd.DataFrame:
    """Write the test digits to ``folder`` and list them, in their fixed order."""
    _, test = load_split()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for image, index, label in zip(test.images, test.indices.tolist(), test.labels.tolist(), strict=True):
        file = folder / f"{index:04d}.npy"
        np.save(file, image.numpy())
        rows.append((index, str(file), label, str(label)))
    return pd.DataFrame(rows, columns=COLUMNS)
