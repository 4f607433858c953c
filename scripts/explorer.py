"""Write the explorer: a run's images in one page, to sort, filter and open."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bootstrap import configure_logging

from adds.data.images import Images, class_names, read_table
from adds.results.explorer import explored, explorer_page, pictures_of


def pictures(inputs: Any, sigmas: list[str]) -> dict[str, Any]:
    images = Images.read(inputs.images, inputs.pixels)
    closeups = {}
    for sigma, file in zip(sigmas, inputs.denoised, strict=True):
        with np.load(file) as stored:
            closeups[float(sigma)] = dict(stored)
    return pictures_of(images.part(0, len(images)), closeups)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "explorer")
    inputs, params = snakemake.input, snakemake.params.explorer
    images = read_table(inputs.images)
    run = explored(
        pd.read_parquet(inputs.certificates),
        pd.read_parquet(inputs.counts),
        images,
        class_names(inputs.get("classes"), images),
    )
    shown = pictures(inputs, params["closeups"]) if params["pictures"] else None
    page = explorer_page(params["experiment"], params["bound"], run, shown)
    Path(snakemake.output[0]).write_text(page, encoding="utf-8")
