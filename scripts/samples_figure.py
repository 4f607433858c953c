"""Draw images that the diffusion model makes from nothing."""

import numpy as np

from adds.figures.samples import draw
from adds.figures.style import look
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "samples_figure")
    with look(snakemake.params.style):
        draw(np.load(snakemake.input[0])).savefig(snakemake.output[0])
