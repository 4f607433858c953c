"""Draw the denoised images of one sigma."""

from pathlib import Path

import numpy as np
import pandas as pd
from bootstrap import configure_logging

from adds.results.figures.denoised import caption, draw
from adds.results.figures.style import look, save

if __name__ == "__main__":
    sigma = float(snakemake.wildcards.sigma)
    configure_logging(snakemake.log[0], f"denoised_figure sigma={sigma:g}")
    with np.load(snakemake.input[0]) as stored:
        pictures = stored["pictures"]
        table = pd.DataFrame({name: stored[name] for name in stored.files if name != "pictures"})
    table = table.astype({"row": int, "column": int, "number": int})
    with look(snakemake.params.figure):
        save(draw(pictures, table, sigma), table, Path(snakemake.output.html).with_suffix(""), caption(table, sigma))
