"""Draw how voting moves the class counts of the images that it changes."""

from pathlib import Path

import pandas as pd

from adds.data.images import class_names
from adds.machine.logs import configure_logging
from adds.results.certified import by_bound
from adds.results.figures.style import look, save
from adds.results.figures.vote_distribution import draw, shares

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "vote_distribution_figure")
    params = snakemake.params.figure
    table = shares(
        pd.read_parquet(snakemake.input.counts),
        by_bound(pd.read_parquet(snakemake.input.certificates), params["bound"]),
        class_names(snakemake.input.get("classes"), pd.read_csv(snakemake.input.images)),
        many=params["votes"],
        limit=params["vote_distribution_images"],
    )
    with look(params):
        save(draw(table), table, Path(snakemake.output.png).with_suffix(""))
