"""List the images of the experiment, and put them where the certification jobs find them."""

from adds.images import prepare_digits
from adds.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "images")
    table = prepare_digits(snakemake.params.dataset["images"], snakemake.params.folder)
    table.to_csv(snakemake.output.table, index=False)
