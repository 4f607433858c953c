"""Put all images of the data set where the certification jobs find them, and list them."""

from pathlib import Path

import pandas as pd

from adds.images import prepare_digits
from adds.logs import configure_logging
from adds.subset import prepare_imagenet

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "prepare_images")
    target = Path(snakemake.output[0])
    folder = target.with_suffix("")
    if snakemake.params.dataset == "digits":
        table = prepare_digits(folder)
    else:
        table = prepare_imagenet(snakemake.input[0], pd.read_csv(snakemake.params.listed), folder)
    table.to_csv(target, index=False)
