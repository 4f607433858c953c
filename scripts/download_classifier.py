"""Get a timm classifier's weights from the hub (or its cache) and keep them as a checkpoint file."""

from dataclasses import asdict

import torch
from torch import nn

from adds.classifiers import TimmClassifier, TimmDescription, pretrained
from adds.descriptions import describe_model
from adds.logs import configure_logging


def same_network(network: nn.Module, rebuilt: nn.Module) -> bool:
    """Tell whether jobs, which build the model from its description, will have the one that was downloaded."""
    rebuilt.load_state_dict(network.state_dict())
    size = TimmDescription.of(network).input_size
    with torch.inference_mode():
        images = torch.randn(1, 3, *size)
        return torch.equal(network.eval()(images), rebuilt.eval()(images))


def main(name: str, revision: str, classes: int, output) -> None:
    network = pretrained(name, revision)
    description = TimmDescription.of(network)
    if description.classes != classes:
        raise ValueError(f"classifier.classes is {classes}, but {name} has {description.classes} classes")
    if not same_network(network, TimmClassifier(description).network):
        raise ValueError(f"{name} is more than its architecture and its weights: it can't be used here")
    torch.save(network.state_dict(), output.weights)
    describe_model(output.weights, {"name": name, "revision": revision, **asdict(description)}, output.description)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_classifier")
    params = snakemake.params
    main(params.name, params.revision, params.classes, snakemake.output)
