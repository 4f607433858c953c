"""Images on disk, and loading them as [C, H, W] in [0, 1]."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from adds.digits import load_split
from adds.listing import COLUMNS


def load_image(path: Path | str, *, size: int) -> Tensor:
    """Load an image in [0, 1]: a .npy array as it is, anything else resized and cropped.

    As for ImageNet's evaluation: the shorter side becomes ``size`` (bicubic), then the centre is cut out.
    """
    path = Path(path)
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, allow_pickle=False)).float()
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} is not a readable image: {error}") from error
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    image = image.crop((left, top, left + size, top + size))
    return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()


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
