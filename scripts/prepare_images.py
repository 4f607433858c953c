"""Put all images of the data set where the certification jobs find them, and list them."""

from pathlib import Path

import pandas as pd

from adds.cifar import prepare_cifar10
from adds.digits import prepare_digits
from adds.listing import class_names
from adds.logs import configure_logging
from adds.subset import prepare_imagenet, read_list

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "prepare_images")
    target = Path(snakemake.output[0])
    folder = target.with_suffix("")
    dataset = snakemake.params.dataset
    if dataset["name"] == "digits":
        table = prepare_digits(folder)
    elif dataset["name"] == "cifar10":
        table = prepare_cifar10(snakemake.input.source[0], dataset["stride"], class_names("cifar10"), folder)
    else:
        listed = read_list(snakemake.input.lists[0], pd.read_csv(snakemake.input.lists[1]))
        table = prepare_imagenet(snakemake.input.source[0], listed, folder)
    table.to_csv(target, index=False)
