"""Draw images that the diffusion model makes from nothing, under real ones."""

from pathlib import Path

import numpy as np
from bootstrap import configure_logging

from adds.data.images import in_unit_interval
from adds.results.figures.samples import COLUMNS, caption, draw, pixels_table
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "samples_figure")
    made = np.load(snakemake.input.made)
    real = in_unit_interval(np.load(snakemake.input.real, mmap_mode="r")[:COLUMNS])
    told = caption(snakemake.params.figure["steps"])
    with look(snakemake.params.figure):
        save(draw(made, real), pixels_table(made, real), Path(snakemake.output.html).with_suffix(""), told)
