"""Put the counts of all shards together and check that none is missing."""

import pandas as pd

from adds.logs import configure_logging
from adds.results import merge_counts


def expected_rows(images: pd.DataFrame, settings: list[tuple[str, str, int]]) -> pd.DataFrame:
    rows = pd.DataFrame(
        [(method, float(sigma), votes) for method, sigma, votes in settings],
        columns=["method", "sigma", "votes"],
    )
    return rows.merge(images[["index"]], how="cross")


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "merge")
    expected = expected_rows(pd.read_csv(snakemake.input.images), snakemake.params.settings)
    counts = merge_counts(snakemake.input.counts, expected, partial=snakemake.params.partial)
    counts.to_parquet(snakemake.output[0], index=False)
