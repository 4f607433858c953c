"""Put all images of the data set where the certification jobs find them, and list them."""

from pathlib import Path

from adds.images import prepare_digits
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "prepare_images")
    target = Path(snakemake.output[0])
    prepare_digits(target.with_suffix("")).to_csv(target, index=False)
