"""ImageNet's validation images: the every-200th subset, from the tar, a flat folder or an ImageFolder tree.

Run as a program, it writes the list of another subset, for ``dataset.list``:

    python -m adds.subset --labels val/ --stride 100 --output config/imagenet_every_100th.csv
"""

import argparse
import io
import logging
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pandas as pd
from PIL import Image

from adds.listing import COLUMNS

logger = logging.getLogger(__name__)


def every_nth(files: pd.DataFrame, stride: int, classes: pd.DataFrame) -> pd.DataFrame:
    """Select from all validation files as the paper does: sorted by class, then by name, every ``stride``-th.

    ``files`` has the columns filename and wnid, ``classes`` wnid, label and name. The order is torchvision's
    ImageFolder's, whose position is the image's ``index``.
    """
    if stride < 1:
        raise ValueError(f"stride is {stride}: it must be at least 1")
    ordered = files[["filename", "wnid"]].sort_values(["wnid", "filename"], ignore_index=True)
    return ordered.iloc[::stride].rename_axis("index").reset_index().merge(classes, on="wnid", how="left")


def all_files(labels: Path | str) -> pd.DataFrame:
    """List filename and wnid of all validation images, from an ImageFolder tree or a CSV with these columns."""
    labels = Path(labels)
    if labels.is_dir():
        rows = [(path.name, path.parent.name) for path in labels.glob("n*/*") if path.is_file()]
        files = pd.DataFrame(rows, columns=["filename", "wnid"])
    else:
        files = pd.read_csv(labels)
    if not {"filename", "wnid"} <= set(files.columns) or not len(files):
        raise ValueError(
            f"{labels} doesn't tell the images' classes: it must be a folder with one folder per class, named by "
            "its wnid, or a CSV file with the columns filename and wnid"
        )
    return files


def read_list(path: Path | str, classes: pd.DataFrame) -> pd.DataFrame:
    """Read a list of images and check it against the class list (label, wnid, name)."""
    images = pd.read_csv(path)
    missing = {"index", "filename", "label", "wnid", "name"} - set(images.columns)
    if missing:
        raise ValueError(f"{path} is not a list of images: it has no column {', '.join(sorted(missing))}")
    known = dict(zip(classes["wnid"], classes["label"], strict=True))
    wrong = images[images["wnid"].map(known) != images["label"]]
    if len(wrong):
        first = wrong.iloc[0]
        raise ValueError(
            f"{path} gives {first['filename']} the class {first['wnid']} with label {first['label']}: the class "
            f"list has {known.get(first['wnid'], 'no such class')}"
        )
    return images


def check_image(data: bytes, name: str) -> None:
    """Stop where an image can't be decoded whole."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{name} is not a readable image: {error}") from error


def extract(archive: Path | str, names: Iterable[str], folder: Path | str) -> None:
    """Stream the tar until all of the named images are in ``folder``; those that are there already stay.

    A member is taken for its file name only, so nothing is ever written outside the folder.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    missing = {name for name in names if not (folder / name).exists()}
    if not missing:
        return
    try:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name not in missing or not member.isfile():
                    continue
                content = tar.extractfile(member)
                data = content.read() if content else b""
                check_image(data, f"{name} in {archive}")
                part = folder / f"{name}.part"
                part.write_bytes(data)
                part.replace(folder / name)
                missing.discard(name)
                if not missing:
                    return
    except tarfile.TarError as error:
        raise ValueError(f"{archive} is not a readable tar archive: {error}") from error
    raise ValueError(f"{archive} lacks {len(missing)} of the images, for example {min(missing)}")


def find_in_folder(root: Path | str, images: pd.DataFrame) -> list[Path]:
    """Return where each image is: in a flat folder, or under its class in an ImageFolder tree."""
    root = Path(root)
    found, missing = [], []
    for row in images.itertuples():
        candidates = (root / row.filename, root / row.wnid / row.filename)
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            missing.append(row.filename)
        else:
            check_image(path.read_bytes(), str(path))
            found.append(path)
    if missing:
        raise ValueError(
            f"{root} lacks {len(missing)} of the {len(images)} images, for example {missing[0]}: it must hold "
            "ILSVRC2012 validation images, in one folder or in one per class"
        )
    return found


def prepare_imagenet(source: Path | str, images: pd.DataFrame, folder: Path | str) -> pd.DataFrame:
    """List the images with their files: extracted from the tar into ``folder``, or used where they are."""
    source, folder = Path(source), Path(folder)
    if source.is_dir():
        files = find_in_folder(source, images)
    elif source.is_file():
        extract(source, images["filename"], folder)
        files = [folder / name for name in images["filename"]]
    else:
        raise FileNotFoundError(f"{source} doesn't exist")
    table = pd.DataFrame(
        {
            "index": images["index"],
            "file": [str(file) for file in files],
            "label": images["label"],
            "class_name": images["name"],
        }
    )
    return table[COLUMNS]


def main() -> None:
    """Write the list of every so many-th validation image."""
    parser = argparse.ArgumentParser(prog="python -m adds.subset", description=main.__doc__)
    parser.add_argument("--labels", required=True, help="ImageFolder tree, or CSV file with filename and wnid")
    parser.add_argument("--stride", type=int, required=True, help="take every so many-th image")
    parser.add_argument("--output", required=True, help="CSV file to write, for dataset.list")
    arguments = parser.parse_args()
    classes = pd.read_csv("config/imagenet_classes.csv")
    chosen = every_nth(all_files(arguments.labels), arguments.stride, classes)
    chosen.to_csv(arguments.output, index=False)
    print(f"{arguments.output} lists {len(chosen)} images")


if __name__ == "__main__":
    main()
