"""Draw how voting moves the class counts of the images that it changes."""

from pathlib import Path

import pandas as pd

from adds.figures.style import look, save
from adds.figures.vote_distribution import draw, shares
from adds.listing import class_names
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "vote_distribution_figure")
    style = snakemake.params.style
    drawn = shares(
        pd.read_parquet(snakemake.input.counts),
        pd.read_parquet(snakemake.input.certificates),
        class_names(snakemake.params.dataset),
        many=snakemake.params.votes,
        limit=style["vote_distribution_images"],
    )
    with look(style):
        save(draw(drawn), drawn, Path(snakemake.output.png).with_suffix(""))
