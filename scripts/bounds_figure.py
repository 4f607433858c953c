"""Draw certified accuracy by the two bounds."""

from pathlib import Path

import pandas as pd

from adds.machine.logs import configure_logging
from adds.registry import in_order
from adds.results.figures.bounds import curves, draw
from adds.results.figures.style import look, save

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "bounds_figure")
    certified = pd.read_parquet(snakemake.input[0])
    variants = in_order(zip(certified["method"], certified["votes"], strict=True))
    shown = [variant for variant in variants if variant.method in ("carlini", "adds")]
    table = curves(certified, [shown[0], shown[-1]] if shown else variants[:1])
    with look(snakemake.params.figure):
        save(draw(table), table, Path(snakemake.output.png).with_suffix(""))
