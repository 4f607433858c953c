"""Draw images that the diffusion model makes from nothing."""

from pathlib import Path

import numpy as np

from adds.machine.logs import configure_logging
from adds.results.figures.samples import draw, pixels_table
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "samples_figure")
    samples = np.load(snakemake.input[0])
    with look(snakemake.params.figure):
        save(draw(samples), pixels_table(samples), Path(snakemake.output.png).with_suffix(""))
