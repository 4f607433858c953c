"""Images of your own: files in a folder, listed in a CSV file with the columns file, label and class_name.

Run as a program, it lists a folder that has a folder for each class (or, without any, images with no labels):

    python -m adds.data.files FOLDER > list.csv
"""

import argparse
import csv
import sys
import zipfile
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from adds.data.images import Form, Stored, decode, in_unit_interval
from adds.machine.logs import progress_bar

SUFFIXES = (".png", ".jpg", ".jpeg", ".npy")


def read(source: Path | None, rows: pd.DataFrame, form: Form) -> Stored:
    """Return the pixels of the listed files, which are below ``source``: photographs as bytes, .npy as float32."""
    if source is None or not source.is_dir():
        raise ValueError(f"dataset.source is {source}: it must be the folder that the listed files are in")
    if "file" not in rows:
        raise ValueError("the list of images has no column file")
    missing = [name for name in rows["file"] if not (source / name).is_file()]
    if missing:
        raise ValueError(f"{source} lacks {len(missing)} of the {len(rows)} listed files, for example {missing[0]}")
    images = [_read_one(source / name, form) for name in progress_bar(rows["file"], desc="images", unit="image")]
    if len({image.dtype for image in images}) > 1:
        images = [in_unit_interval(image) for image in images]
    return cast("Stored", np.stack(images))


def _read_one(path: Path, form: Form) -> Stored:
    return _read_array(path, form) if path.suffix.lower() == ".npy" else decode(path.read_bytes(), str(path), form)


def _read_array(path: Path, form: Form) -> Stored:
    """Read an array [C, H, W] (or [H, W]) of bytes, or of numbers in [0, 1]."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable array: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "buif":
        raise ValueError(f"{path} is not an array of numbers")
    array = array[None] if array.ndim == 2 else array
    expected = (form.channels, form.size, form.size)
    if array.shape != expected:
        raise ValueError(f"{path} has the shape {array.shape} instead of {expected}")
    if array.dtype == np.uint8:
        return array
    array = array.astype(np.float32)
    if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
        raise ValueError(f"{path} has values outside [0, 1]")
    return array


def _images(folder: Path, pattern: str) -> list[Path]:
    """Return the images in a folder, but for those that are hidden or in a hidden folder."""
    found = sorted(path for path in folder.glob(pattern) if path.suffix.lower() in SUFFIXES)
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def listing(folder: Path) -> list[dict[str, str | int]]:
    """List the images below a folder: its folders are the classes, in the order of their names."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    rows: list[dict[str, str | int]] = [
        {"file": str(path.relative_to(folder)), "label": label, "class_name": kind.name}
        for label, kind in enumerate(classes)
        for path in _images(kind, "**/*")
    ]
    if not rows:
        rows = [{"file": path.name} for path in _images(folder, "*")]
    if not rows:
        raise ValueError(f"{folder} has no images: they must end in {', '.join(SUFFIXES)}")
    return rows


def main() -> None:
    """List the images of a folder, as dataset.list wants them."""
    parser = argparse.ArgumentParser(prog="python -m adds.data.files", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="a folder with a folder for each class")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        parser.exit(1, f"{folder} is not a folder\n")
    rows = listing(folder)
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    print(f"{len(rows)} images", file=sys.stderr)


if __name__ == "__main__":
    main()
