"""Get a timm classifier's weights from the hub (or its cache) and keep them as a checkpoint file."""

from dataclasses import asdict

import torch

from adds.assets import describe_model
from adds.classifiers import TimmDescription, pretrained
from adds.logs import configure_logging


def main(name: str, revision: str, classes: int, output) -> None:
    network = pretrained(name, revision)
    description = TimmDescription.of(network)
    if description.classes != classes:
        raise ValueError(f"classifier.classes is {classes}, but {name} has {description.classes} classes")
    torch.save(network.state_dict(), output.weights)
    describe_model(output.weights, {"name": name, "revision": revision, **asdict(description)}, output.description)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_classifier")
    params = snakemake.params
    main(params.model["name"], params.revision, params.model["classes"], snakemake.output)
