"""ImageNet's validation images: the every-200th subset, from the tar, a flat folder or an ImageFolder tree.

Run as a program, it writes the list of another subset, for ``dataset.list``:

    python -m adds.data.imagenet --labels val/ --stride 100 --output config/imagenet_every_100th.csv
"""

import argparse
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.data.images import Form, decode
from adds.machine.logs import progress_bar

Decoded = NDArray[np.uint8]


def every_nth(files: pd.DataFrame, stride: int, classes: pd.DataFrame) -> pd.DataFrame:
    """Select from all validation files as the paper does: sorted by class, then by name, every ``stride``-th.

    ``files`` has the columns filename and wnid, ``classes`` wnid, label and name. The order is torchvision's
    ImageFolder's, whose position is the image's ``number``.
    """
    if stride < 1:
        raise ValueError(f"stride is {stride}: it must be at least 1")
    ordered = files[["filename", "wnid"]].sort_values(["wnid", "filename"], ignore_index=True)
    return ordered.iloc[::stride].rename_axis("number").reset_index().merge(classes, on="wnid", how="left")


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


def read(source: Path | None, rows: pd.DataFrame, form: Form) -> Decoded:
    """Return the listed images: from the tar, or from a folder where they are in one or in one per class."""
    missing = {"filename", "wnid"} - set(rows.columns)
    if missing:
        raise ValueError(f"the list of ImageNet's images has no column {', '.join(sorted(missing))}")
    if source is not None and source.is_dir():
        return np.stack(_read_folder(source, rows, form))
    if source is not None and source.is_file():
        found = _read_tar(source, set(rows["filename"]), form)
        return np.stack([found[name] for name in rows["filename"]])
    raise FileNotFoundError(f"dataset.source is {source}: it doesn't exist")


def _read_tar(archive: Path, names: set[str], form: Form) -> dict[str, Decoded]:
    """Stream the tar until all of the named images are there: the paper's are in its first tenth.

    A member is taken for its file name only, and nothing is written to disk.
    """
    found: dict[str, Decoded] = {}
    try:
        with tarfile.open(archive, "r|*") as tar, progress_bar(total=len(names), desc="images", unit="image") as bar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name not in names or name in found or not member.isfile():
                    continue
                content = tar.extractfile(member)
                found[name] = decode(content.read() if content else b"", f"{name} in {archive}", form)
                bar.update()
                if len(found) == len(names):
                    return found
    except tarfile.TarError as error:
        raise ValueError(f"{archive} is not a readable tar archive: {error}") from error
    missing = names - found.keys()
    raise ValueError(f"{archive} lacks {len(missing)} of the images, for example {min(missing)}")


def _read_folder(root: Path, rows: pd.DataFrame, form: Form) -> list[Decoded]:
    """Read each image where it is: in a flat folder, or under its class in an ImageFolder tree."""
    found, missing = [], []
    for row in progress_bar(rows.itertuples(), total=len(rows), desc="images", unit="image"):
        candidates = (root / row.filename, root / row.wnid / row.filename)
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            missing.append(row.filename)
        elif not missing:
            found.append(decode(path.read_bytes(), str(path), form))
    if missing:
        raise ValueError(
            f"{root} lacks {len(missing)} of the {len(rows)} images, for example {missing[0]}: it must hold "
            "ILSVRC2012 validation images, in one folder or in one per class"
        )
    return found


def main() -> None:
    """Write a list of validation images: every 100th with a stride of 100."""
    parser = argparse.ArgumentParser(prog="python -m adds.data.imagenet", description=main.__doc__)
    parser.add_argument("--labels", required=True, help="ImageFolder tree, or CSV file with filename and wnid")
    parser.add_argument("--stride", type=int, required=True, help="from one listed image to the next")
    parser.add_argument("--classes", default="config/imagenet_classes.csv", help="CSV file of wnid, label and name")
    parser.add_argument("--output", required=True, help="CSV file to write, for dataset.list")
    arguments = parser.parse_args()
    classes = pd.read_csv(arguments.classes)
    chosen = every_nth(all_files(arguments.labels), arguments.stride, classes)
    chosen.to_csv(arguments.output, index=False)
    print(f"{arguments.output} lists {len(chosen)} images")


if __name__ == "__main__":
    main()
