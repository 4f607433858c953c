"""Draw certified accuracy against radius, one panel per sigma."""

from pathlib import Path

import pandas as pd

from adds.machine.logs import configure_logging
from adds.results.certified import by_bound
from adds.results.figures.certified_accuracy import curves, draw
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "certified_accuracy_figure")
    certified = by_bound(pd.read_parquet(snakemake.input[0]), snakemake.params.figure["bound"])
    table = curves(certified, int(snakemake.wildcards.votes))
    with look(snakemake.params.figure):
        save(draw(table), table, Path(snakemake.output.png).with_suffix(""))
