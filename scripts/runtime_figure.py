"""Draw what it takes to certify one image, per method and sigma."""

from pathlib import Path

import pandas as pd
from bootstrap import configure_logging

from adds.data.images import read_table
from adds.results.certified import by_bound
from adds.results.figures.runtime import caption, draw, times
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "runtime_figure")
    params = snakemake.params.figure
    certified = by_bound(pd.read_parquet(snakemake.input.certificates), params["bound"])
    table = times(certified, list(read_table(snakemake.input.images)["number"]), params["images_per_job"])
    with look(params):
        save(draw(table), table, Path(snakemake.output.html).with_suffix(""), caption(table))
