"""Download the archive of the data set's images, where no local copy is configured."""

from bootstrap import configure_logging

from adds.data.download import Expected, fetch
from adds.registry import DATASETS

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_images")
    download = snakemake.params.download["download"]
    hint = DATASETS[snakemake.params.download["dataset"]].hint
    fetch(download["urls"], snakemake.output[0], Expected.from_settings(download), hint=hint)
