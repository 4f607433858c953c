"""Draw the denoised images of one sigma."""

from pathlib import Path

import numpy as np
import pandas as pd

from adds.figures.denoised import draw
from adds.figures.style import look, save
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], f"denoised_figure sigma={snakemake.wildcards.sigma}")
    with np.load(snakemake.input[0]) as stored:
        pictures = stored["pictures"]
        drawn = pd.DataFrame({name: stored[name] for name in stored.files if name != "pictures"})
    drawn = drawn.astype({"row": int, "column": int, "index": int})
    names = list(drawn[drawn["row"] == 0].sort_values("column")["name"])
    with look(snakemake.params.style):
        save(draw(pictures, names, drawn), drawn, Path(snakemake.output.png).with_suffix(""))
