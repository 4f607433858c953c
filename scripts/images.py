"""Take the experiment's images from the start of the data set's list."""

import pandas as pd

from adds.listing import first_images
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "images")
    table = first_images(pd.read_csv(snakemake.input[0]), snakemake.params.images)
    table.to_csv(snakemake.output[0], index=False)
