"""Draw how voting moves the class counts of the images that it changes."""

from pathlib import Path

import pandas as pd
from bootstrap import configure_logging

from adds.data.images import class_names, read_table
from adds.results.certified import by_bound
from adds.results.figures.style import look, save
from adds.results.figures.vote_distribution import caption, draw, needed_percent, shares

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "vote_distribution_figure")
    params = snakemake.params.figure
    stage = params["vote_distribution_stage"]
    table = shares(
        pd.read_parquet(snakemake.input.counts),
        by_bound(pd.read_parquet(snakemake.input.certificates), params["bound"]),
        class_names(snakemake.input.get("classes"), read_table(snakemake.input.images)),
        many=params["votes"],
        images=params["vote_distribution_images"],
        stage=stage,
    )
    fixed = params["bound"] == "cohen" and not params["at_most"]
    told = caption(table, stage=stage, needed=needed_percent(params["n"], params["alpha"]) if fixed else None)
    with look(params):
        save(draw(table), table, Path(snakemake.output.html).with_suffix(""), told)
