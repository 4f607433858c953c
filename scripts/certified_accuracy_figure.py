"""Draw certified accuracy against radius, one panel per sigma."""

from pathlib import Path

import pandas as pd

from adds.figures.certified_accuracy import curves, draw
from adds.figures.style import look, save
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "certified_accuracy_figure")
    drawn = curves(pd.read_parquet(snakemake.input[0]), int(snakemake.wildcards.votes))
    with look(snakemake.params.style):
        save(draw(drawn), drawn, Path(snakemake.output.png).with_suffix(""))
