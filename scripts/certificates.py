"""Certify every image from the merged counts, by every bound, and note that their samples were looked at."""

import pandas as pd
from bootstrap import configure_logging

from adds.monitor.looks import look_of, note
from adds.results.certified import certificates

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "certificates")
    params = snakemake.params.certificates
    table = certificates(pd.read_parquet(snakemake.input[0]), **params["how"])
    note(look_of(params["look"], table))
    table.to_parquet(snakemake.output.parquet, index=False)
    table.to_csv(snakemake.output.csv, index=False)
