"""Put the counts of all shards together, and check that none is missing and none is foreign."""

from pathlib import Path

from bootstrap import configure_logging

from adds.data.images import read_table
from adds.models.weights import checksums
from adds.results.merge import merge_counts

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "merge")
    inputs, params = snakemake.input, snakemake.params.experiment
    folders = {folder for entry in params["identities"] for folder in entry["folders"].values()}
    counts = merge_counts(
        inputs.counts,
        read_table(inputs.images),
        params["identities"],
        {folder: checksums(Path(folder)) for folder in folders},
        params["sampling"],
        partial=params["partial"],
    )
    counts.to_parquet(snakemake.output[0], index=False)
