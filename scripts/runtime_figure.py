"""Draw the time to certify one image, per method and sigma."""

from pathlib import Path

import pandas as pd

from adds.figures.runtime import draw, times
from adds.figures.style import look, save
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "runtime_figure")
    drawn = times(pd.read_parquet(snakemake.input[0]))
    with look(snakemake.params.style):
        save(draw(drawn), drawn, Path(snakemake.output.png).with_suffix(""))
