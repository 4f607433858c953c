"""Get a timm classifier's weights from the hub (or its cache) and keep them as a checkpoint file."""

import torch

from adds.assets import describe_model
from adds.classifiers import import_timm
from adds.logs import configure_logging


def main(name: str, revision: str, weights: str) -> None:
    timm = import_timm()
    overlay = {"hf_hub_id": f"timm/{name}@{revision}"}
    network = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    torch.save(network.state_dict(), weights)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_classifier")
    params, output = snakemake.params, snakemake.output
    main(params.model["name"], params.revision, output.weights)
    settings = {**params.model, "batch_size": snakemake.config["classifier"]["batch_size"]}
    describe_model(output.weights, settings, output.description)
