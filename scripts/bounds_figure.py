"""Draw certified accuracy by the two bounds."""

from pathlib import Path

import pandas as pd

from adds.figures.bounds import curves, draw
from adds.figures.style import look, save
from adds.logs import configure_logging
from adds.naming import in_order

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "bounds_figure")
    both = pd.read_parquet(snakemake.input[0])
    settings = in_order(zip(both["method"], both["votes"], strict=True))
    shown = [setting for setting in settings if setting[0] in ("carlini", "adds")]
    drawn = curves(both, [shown[0], shown[-1]] if shown else settings[:1])
    with look(snakemake.params.style):
        save(draw(drawn), drawn, Path(snakemake.output.png).with_suffix(""))
