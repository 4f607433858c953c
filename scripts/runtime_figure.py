"""Draw the time to certify one image, per method and sigma."""

from pathlib import Path

import pandas as pd

from adds.machine.logs import configure_logging
from adds.results.certified import by_bound
from adds.results.figures.runtime import draw, times
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "runtime_figure")
    table = times(by_bound(pd.read_parquet(snakemake.input[0]), snakemake.params.figure["bound"]))
    with look(snakemake.params.figure):
        save(draw(table), table, Path(snakemake.output.png).with_suffix(""))
