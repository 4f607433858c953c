"""CIFAR-10's test images, from the archive in its binary version: no pickle is ever loaded."""

import tarfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.data.images import Form, check_listed

TEST_BATCH = "cifar-10-batches-bin/test_batch.bin"
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
"""Bytes of an image: its label, then red, green and blue by rows."""


def read_test_batch(archive: Path | str) -> NDArray[np.uint8]:
    """Return the test batch's records, [n, RECORD]."""
    try:
        with tarfile.open(archive) as tar:
            content = tar.extractfile(TEST_BATCH)
            records = content.read() if content else b""
            while tar.fileobj.read(1 << 20):  # gzip's checksum is at the end
                pass
    except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is not CIFAR-10's binary archive: {error}") from error
    if not records or len(records) % RECORD:
        raise ValueError(f"{archive} is not CIFAR-10's binary archive: {TEST_BATCH} has {len(records)} bytes")
    return np.frombuffer(records, np.uint8).reshape(-1, RECORD)


def read(source: Path | None, rows: pd.DataFrame, form: Form) -> NDArray[np.uint8]:
    """Return the listed test images, whose numbers are their places in the test batch."""
    if source is None or form.size != SHAPE[1]:
        raise ValueError(f"CIFAR-10 is 32 x 32 and needs a source: {source} and {form.size} x {form.size} don't fit")
    records = read_test_batch(source)
    check_listed(rows, records[:, 0], source)
    chosen = records[rows["number"].to_numpy()]
    images: NDArray[np.uint8] = chosen[:, 1:].reshape(-1, *SHAPE)
    return images
