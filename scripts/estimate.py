"""Print what the configured run costs, before it is begun."""

from pathlib import Path

from adds.estimate import estimate, summary
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "estimate")
    params = snakemake.params
    counts = sorted(Path(params.counts).glob("*/sigma*/votes*/*.parquet"))
    table = estimate(snakemake.config, params.settings, params.leaders, counts)
    print(summary(table, snakemake.config), flush=True)
