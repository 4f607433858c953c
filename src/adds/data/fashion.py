"""Fashion-MNIST's images, 28 x 28 and grey, from a folder with its four IDX files, gzipped or not."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.data.images import Examples, Form, check_listed, in_unit_interval

SIZE = 28
FOR_CHOICES = 5_000
"""The last so many of the 60,000 training images are for choices, and networks aren't trained on them."""


def read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Return the array of bytes that an IDX file holds."""
    path = next((found for found in (folder / name, folder / f"{name}.gz") if found.is_file()), None)
    if path is None:
        raise ValueError(f"{folder} has neither {name} nor {name}.gz")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is broken: {error}") from error
    # Two zeros, 8 for bytes, the number of dimensions; then the dimensions, with their highest byte first.
    dimensions = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    start = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    if not dimensions or len(content) - start != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} is not an IDX file of bytes: its {len(content)} bytes don't fit its header")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_part(source: Path | None, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images [n, 1, 28, 28] and labels of a part: ``train`` or ``t10k``, the test set."""
    if source is None:
        raise ValueError("Fashion-MNIST needs a source: a folder with its four IDX files")
    images, labels = (read_idx(source, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    if images.shape != (len(labels), SIZE, SIZE) or labels.ndim != 1:
        raise ValueError(f"{source}: the images of {part} have the shape {images.shape}, the labels {labels.shape}")
    return images[:, None], labels.astype(np.int64)


def training(source: Path | None) -> tuple[Examples, Examples]:
    """Return the images to train on, and those that choices rest on."""
    stored, labels = read_part(source, "train")
    examples = Examples(in_unit_interval(stored), labels, np.arange(len(labels)))
    return examples[examples.numbers[:-FOR_CHOICES]], examples[examples.numbers[-FOR_CHOICES:]]


def read(source: Path | None, rows: pd.DataFrame, form: Form) -> NDArray[np.uint8]:
    """Return the listed test images, whose numbers are their places in the test set."""
    if form.size != SIZE or form.channels != 1:
        raise ValueError(f"Fashion-MNIST is 28 x 28 and grey: {form.size} x {form.size} x {form.channels} doesn't fit")
    images, labels = read_part(source, "t10k")
    check_listed(rows, labels, source)
    chosen: NDArray[np.uint8] = images[rows["number"].to_numpy()]
    return chosen
