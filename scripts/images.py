"""Decode the listed images once, and describe them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bootstrap import configure_logging

from adds.data.images import Form, check_labels, class_names, describe, reader, source_of


def main(recipe: dict[str, Any], listed: str, classes: str | None, source: Path | None, output: Any) -> None:
    rows = pd.read_csv(listed, dtype={"class_name": str, "name": str}, keep_default_na=False, na_values={"label": [""]})
    if classes:
        check_labels(rows, classes)
    form = Form(recipe["image_size"], recipe["in_channels"], recipe["crop"])
    stored = reader(recipe["dataset"]).read(source, rows, form)
    expected = (len(rows), form.channels, form.size, form.size)
    if stored.shape != expected:
        raise ValueError(f"the images have the shape {stored.shape}, the diffusion model needs {expected}")
    table = describe(rows, stored, class_names(classes, rows), recipe["number_of_classes"])
    np.save(output.pixels, stored)
    table.to_csv(output.table, index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "images")
    main(
        snakemake.params.images,
        snakemake.input.list,
        snakemake.input.get("classes"),
        source_of(snakemake.input.get("source")),
        snakemake.output,
    )
