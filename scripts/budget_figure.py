"""Draw how ADDS spends its privacy budget over the steps."""

from pathlib import Path

import pandas as pd

from adds.figures.budget import draw
from adds.figures.style import look, save
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "budget_figure")
    drawn = pd.read_csv(snakemake.input[0])
    with look(snakemake.params.style):
        save(draw(drawn), drawn, Path(snakemake.output.png).with_suffix(""))
