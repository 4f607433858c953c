"""The images of an experiment: decoded once into one array, with a table of what each of them is; needs no torch."""

import hashlib
import importlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from PIL import Image

Stored = NDArray[np.uint8] | NDArray[np.float32]
"""Pixels as they are kept: bytes, or float32 in [0, 1] where bytes can't hold them."""
Pixels = NDArray[np.float32]
"""Pixels as methods see them: [C, H, W] in [0, 1]."""

COLUMNS = ["number", "label", "class_name", "pixels"]
_DIGITS_OF_A_NUMBER = 12


@dataclass(frozen=True)
class Form:
    """What images are to be: ``size`` x ``size`` pixels of so many ``channels``.

    With ``crop`` the shorter side of a photograph becomes ``size`` (bicubic) and the centre is cut out, as for
    ImageNet's evaluation; without it, one of another size is refused.
    """

    size: int
    channels: int
    crop: bool = True


@dataclass(frozen=True)
class Examples:
    """Labelled images [n, C, H, W] in [0, 1] with their numbers in their data set."""

    images: Pixels
    labels: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: NDArray[np.int64]) -> "Examples":
        # Plain indexing would give a single channel another stride, and torch's convolutions another rounding.
        return Examples(self.images.take(chosen, axis=0), self.labels[chosen], self.numbers[chosen])


class Reader(Protocol):
    """What a module of a data set provides."""

    def read(self, source: Path | None, rows: pd.DataFrame, form: Form) -> Stored:
        """Return the pixels of every row of a list, [n, C, H, W]; name what is missing or broken."""


def reader(dataset: str) -> Reader:
    """Return the module of a data set."""
    return cast("Reader", importlib.import_module(f"adds.data.{dataset}"))


def source_of(files: str | Sequence[str] | None) -> Path | None:
    """Return the source that a job's input names: one file or folder, or the folder that several files are in."""
    names = [files] if isinstance(files, str) else list(files or [])
    return Path(os.path.commonpath(names)) if names else None


def training_of(dataset: str, source: Path | None = None) -> tuple[Examples, Examples]:
    """Return the images of a data set that networks are trained on, and those that choices rest on."""
    found: tuple[Examples, Examples] = importlib.import_module(f"adds.data.{dataset}").training(source)
    return found


def check_listed(rows: pd.DataFrame, labels: NDArray[Any], source: object) -> None:
    """Refuse a list that has numbers which a source hasn't, or other labels than the source, by their numbers."""
    numbers = rows["number"].to_numpy()
    outside = numbers[(numbers < 0) | (numbers >= len(labels))]
    if len(outside):
        raise ValueError(f"{source} has no image {outside[0]}: it has {len(labels)}")
    wrong = np.flatnonzero(labels[numbers] != rows["label"].to_numpy())
    if len(wrong):
        number, listed = numbers[wrong[0]], rows["label"].iloc[wrong[0]]
        raise ValueError(f"{source}: image {number} has label {labels[number]}, the list of images has {listed}")


def decode(data: bytes, name: str, form: Form) -> NDArray[np.uint8]:
    """Decode a photograph whole: uint8 [C, H, W]."""
    try:
        with Image.open(io.BytesIO(data)) as file:
            deep = file.mode.startswith("I;16")  # convert() would clip these
            image = Image.fromarray((np.asarray(file) >> 8).astype(np.uint8)) if deep else file
            image = image.convert("L" if form.channels == 1 else "RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name} is not a readable image: {error}") from error
    size = form.size
    if image.size != (size, size) and not form.crop:
        raise ValueError(
            f"{name} has {image.size[0]} x {image.size[1]} pixels instead of {size} x {size}: set dataset.crop to true"
        )
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    pixels = np.asarray(image.crop((left, top, left + size, top + size)))
    return np.ascontiguousarray(pixels.reshape(size, size, form.channels).transpose(2, 0, 1))


def pixels_of(stored: Stored) -> str:
    """Name an image by its pixels, so that samples of one are never counted for another."""
    text = f"{stored.dtype}{stored.shape}".encode()
    return hashlib.sha256(text + np.ascontiguousarray(stored).tobytes()).hexdigest()[:16]


def in_unit_interval(stored: Stored) -> Pixels:
    """Return stored pixels in [0, 1]."""
    pixels = stored.astype(np.float32)
    return pixels / np.float32(255) if stored.dtype == np.uint8 else pixels


def describe(rows: pd.DataFrame, stored: Stored, names: dict[int, str], classes: int) -> pd.DataFrame:
    """Return the table of images: their numbers, labels, class names and pixels' checksums.

    An image's number is the one that its list gives it, or else one made of its pixels: random numbers are derived
    from it, so it must be an image's own. Labels may be missing altogether.
    """
    checksums = [pixels_of(image) for image in stored]
    numbers = rows.get("number", [int(checksum[:_DIGITS_OF_A_NUMBER], 16) for checksum in checksums])
    table = pd.DataFrame({"number": list(numbers), "pixels": checksums})
    for key in {"number", "label"} & set(rows):
        known = rows[key].reset_index(drop=True)
        whole = pd.to_numeric(known, errors="coerce") % 1 == 0
        wrong = ~whole & (known.notna() | (key == "number"))
        if wrong.any():
            first = int(wrong.idxmax())
            raise ValueError(f"{key} {known[first]} at {_where(rows, first)} is not a whole number")
    twice = table[table.duplicated("number")]
    if len(twice):
        raise ValueError(
            f"the list of images has number {twice['number'].iloc[0]} twice: {_where(rows, twice.index[0])}"
        )
    labels = pd.Series(rows.get("label", pd.Series(pd.NA, rows.index))).astype("Int64").reset_index(drop=True)
    if labels.isna().any() and labels.notna().any():
        place = _where(rows, int(labels.isna().idxmax()))
        raise ValueError(f"the list of images has no label at {place}: give all of them one, or none")
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(
            f"label {wrong.iloc[0]} at {_where(rows, wrong.index[0])} is none of the classifier's {classes} classes, "
            f"0 to {classes - 1}"
        )
    table["label"] = labels
    table["class_name"] = ["" if pd.isna(label) else names.get(int(label), str(label)) for label in labels]
    return table[COLUMNS]


def read_table(path: Path | str) -> pd.DataFrame:
    """Read a table that `describe` made. A class may be called null, or NA."""
    columns: dict[str, Any] = {"number": "int64", "label": "Int64", "class_name": str, "pixels": str}
    return pd.read_csv(path, dtype=columns, keep_default_na=False, na_values={"label": [""]})


def _where(rows: pd.DataFrame, position: int) -> str:
    row = rows.iloc[position]
    return f"line {position + 2} ({row['file'] if 'file' in rows else row.iloc[0]})"


def class_names(path: Path | str | None, rows: pd.DataFrame | None = None) -> dict[int, str]:
    """Return the names of the classes: from a CSV file (label, name), else from a list's rows, else none."""
    table = pd.read_csv(path) if path else rows
    name = "name" if path else "class_name"
    if table is None or not {"label", name} <= set(table.columns):
        return {}
    named = table.dropna(subset=["label"])
    return {int(label): str(text) for label, text in zip(named["label"], named[name], strict=True)}


def check_labels(rows: pd.DataFrame, path: Path | str) -> None:
    """Refuse a list whose labels aren't those that the file of classes gives its wnids."""
    classes = pd.read_csv(path)
    if "wnid" not in rows or "wnid" not in classes:
        return
    labels = dict(zip(classes["wnid"], classes["label"], strict=True))
    wrong = rows[rows["wnid"].map(labels) != rows["label"]]
    if len(wrong):
        first = wrong.iloc[0]
        raise ValueError(
            f"the list of images gives {first['filename']} the class {first['wnid']} with label {first['label']}: "
            f"{path} has {labels.get(first['wnid'], 'no such class')}"
        )


@dataclass(frozen=True)
class Picture:
    """One image with what is known of it; ``label`` is None where nobody said.

    ``number`` is its own in its data set: random numbers are derived from it. ``checksum`` is that of the pixels.
    """

    pixels: Pixels
    number: int
    label: int | None
    class_name: str
    checksum: str

    @classmethod
    def of(cls, pixels: ArrayLike, number: int = 0, label: int | None = None) -> "Picture":
        """Describe an image [C, H, W] in [0, 1] that no list has."""
        array = np.asarray(pixels, dtype=np.float32)
        return cls(array, number, label, "" if label is None else str(label), pixels_of(array))


@dataclass(frozen=True)
class Images:
    """Some images of an experiment, in their order."""

    table: pd.DataFrame
    stored: Stored

    @classmethod
    def read(cls, table: Path | str, stored: Path | str) -> "Images":
        """Open what the workflow's rule left; pixels stay on disk until they are asked for."""
        return cls(read_table(table), np.load(stored, mmap_mode="r"))

    def part(self, first: int, end: int) -> "Images":
        """Return positions ``first`` to ``end`` - 1."""
        return Images(self.table.iloc[first:end], self.stored[first:end])

    def of_different_classes(self, count: int) -> "Images":
        """Return so many images in their order: the first of every class, then the second ones, as far as needed."""
        turn = self.table.groupby("label", dropna=False).cumcount().reset_index(drop=True)
        chosen = sorted(turn.sort_values(kind="stable").index[:count])
        return Images(self.table.iloc[chosen], self.stored[chosen])

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Picture]:
        for row, stored in zip(self.table.itertuples(index=False), self.stored, strict=True):
            if pixels_of(stored) != row.pixels:
                raise ValueError(f"the pixels of image {row.number} are not those that were listed: delete images.npy")
            label = None if pd.isna(row.label) else int(row.label)
            yield Picture(in_unit_interval(stored), int(row.number), label, str(row.class_name), str(row.pixels))
