"""Certify every image from the merged counts."""

import pandas as pd

from adds.logs import configure_logging
from adds.results import certificates

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "certificates")
    counts = pd.read_parquet(snakemake.input[0])
    params = {key: snakemake.params[key] for key in ("alpha", "mode")}
    by_bound = {bound: certificates(counts, bound=bound, **params) for bound in ("cohen", "two_sided")}
    pd.concat(by_bound.values(), ignore_index=True).to_parquet(snakemake.output.bounds, index=False)
    table = by_bound[snakemake.params.bound]
    table.to_parquet(snakemake.output.parquet, index=False)
    table.to_csv(snakemake.output.csv, index=False)
