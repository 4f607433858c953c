"""Download the data set's archive, or its files, where no local copy is configured."""

from bootstrap import configure_logging

from adds.data.download import Expected, fetch
from adds.registry import DATASETS

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_images")
    hint = DATASETS[snakemake.params.download["dataset"]].hint
    told = snakemake.params.download["download"]
    downloads = told if isinstance(told, list) else [told]
    for download, target in zip(downloads, snakemake.output, strict=True):
        fetch(download["urls"], target, Expected.from_settings(download), hint=hint)
