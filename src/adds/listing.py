"""The list of a run's images, and the names of their classes; needs no torch."""

import pandas as pd

COLUMNS = ["index", "file", "label", "class_name"]


def first_images(images: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the first ``count`` images of a data set's list."""
    if not 1 <= count <= len(images):
        raise ValueError(f"dataset.images is {count}: this data set has 1 to {len(images)}")
    return images.head(count)


def class_names(dataset: str) -> dict[int, str]:
    """Return the name of every class of a data set."""
    if dataset == "digits":
        return {label: str(label) for label in range(10)}
    table = pd.read_csv(f"config/{dataset}_classes.csv")
    return dict(zip(table["label"], table["name"], strict=True))
