"""Draw certified accuracy against radius, one panel per sigma."""

from pathlib import Path

import pandas as pd
from bootstrap import configure_logging

from adds.results.certified import by_bound
from adds.results.figures.certified_accuracy import caption, curves, draw
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "certified_accuracy_figure")
    params, votes = snakemake.params.figure, int(snakemake.wildcards.votes)
    table = curves(by_bound(pd.read_parquet(snakemake.input[0]), params["bound"]), votes)
    told = caption(table, votes, **{key: params[key] for key in ("bound", "n", "alpha", "at_most")})
    with look(params):
        save(draw(table), table, Path(snakemake.output.html).with_suffix(""), told)
