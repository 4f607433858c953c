"""Draw how ADDS spends its privacy budget over the steps."""

from pathlib import Path

import pandas as pd
from bootstrap import configure_logging

from adds.results.figures.budget import caption, draw
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "budget_figure")
    table = pd.read_csv(snakemake.input[0])
    with look(snakemake.params.figure):
        save(draw(table), table, Path(snakemake.output.html).with_suffix(""), caption())
