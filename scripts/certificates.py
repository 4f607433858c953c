"""Certify every image from the merged counts."""

import pandas as pd

from adds.logs import configure_logging
from adds.results import certificates

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "certificates")
    table = certificates(pd.read_parquet(snakemake.input[0]), alpha=snakemake.params.alpha)
    table.to_parquet(snakemake.output.parquet, index=False)
    table.to_csv(snakemake.output.csv, index=False)
