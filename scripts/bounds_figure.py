"""Draw certified accuracy by the two bounds."""

from pathlib import Path

import pandas as pd
from bootstrap import configure_logging

from adds.results.figures.bounds import caption, curves, draw
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "bounds_figure")
    table = curves(pd.read_parquet(snakemake.input[0]))
    with look(snakemake.params.figure):
        save(draw(table), table, Path(snakemake.output.html).with_suffix(""), caption(table))
