"""Draw one image's trajectory from noise to the classifier."""

from pathlib import Path

import numpy as np
import pandas as pd
from bootstrap import configure_logging

from adds.results.figures.pipeline import caption, draw
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "pipeline_figure")
    with np.load(snakemake.input[0]) as stored:
        table = pd.DataFrame({name: stored[name] for name in ("timestep", "guided", "spent_percent")})
        named = {name: str(stored[name]) for name in ("truth", "prediction")}
        told = caption(table, number=int(stored["number"]), sigma=float(stored["sigma"]))
        with look(snakemake.params.figure):
            figure = draw(stored["pictures"], table, stored["image"], **named)
            save(figure, table, Path(snakemake.output.html).with_suffix(""), told)
