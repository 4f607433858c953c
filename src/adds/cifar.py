"""CIFAR-10's test images, from the archive in its binary version: no pickle is ever loaded."""

import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from adds.listing import COLUMNS

TEST_BATCH = "cifar-10-batches-bin/test_batch.bin"
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
"""Bytes of an image: its label, then red, green and blue by rows."""


def read_test_batch(archive: Path | str) -> bytes:
    """Return the test batch's records."""
    try:
        with tarfile.open(archive) as tar:
            content = tar.extractfile(TEST_BATCH)
            records = content.read() if content else b""
    except (tarfile.TarError, KeyError, OSError, EOFError) as error:
        raise ValueError(f"{archive} is not CIFAR-10's binary archive: {error}") from error
    if not records or len(records) % RECORD:
        raise ValueError(f"{archive} is not CIFAR-10's binary archive: {TEST_BATCH} has {len(records)} bytes")
    return records


def prepare_cifar10(
    archive: Path | str, stride: int, classes: Mapping[int, str], folder: Path | str
) -> pd.DataFrame:
    """Write every ``stride``-th test image to ``folder`` and list them, in the order of the test batch."""
    records = np.frombuffer(read_test_batch(archive), np.uint8).reshape(-1, RECORD)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for index in range(0, len(records), stride):
        label, pixels = int(records[index, 0]), records[index, 1:].reshape(SHAPE).transpose(1, 2, 0)
        if label not in classes:
            raise ValueError(f"{archive}: image {index} has label {label}, which is none of CIFAR-10's classes")
        file = folder / f"{index:05d}.png"
        Image.fromarray(pixels).save(file)
        rows.append((index, str(file), label, classes[label]))
    return pd.DataFrame(rows, columns=COLUMNS)
