"""Write the networks that the workflow has trained into weights/, in half precision.

    python -m studies.publish_weights config/fashion.yaml

after a run of it with models: {source: train}. Files go where the configuration takes them from otherwise; each says
inside what it was made by.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import save
from snakemake.utils import update_config

from adds.experiment import Experiment
from adds.models.weights import WEIGHTS, read_tensors
from adds.registry import KERNELS, READERS

EXACT = "alphas_bar"
"""What isn't rounded: the schedule that a network was trained for."""


def trained(path: str) -> Experiment:
    """Read a configuration on top of the paper's, with networks that are trained."""
    config: dict[str, Any] = {}
    for name in ("config/config.yaml", path):
        update_config(config, yaml.safe_load(Path(name).read_text()))
    return Experiment.from_config({**config, "models": {"source": "train"}})


def networks(experiment: Experiment) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield where each network is, where it is published, and what it was made by."""
    config = experiment.config
    for name in ("diffusion", "classifier"):
        yield experiment.folder(name), config[name]["weights"], experiment.recipe(name)
    for reader in (name for name in READERS if name not in KERNELS):
        for sigma, file in config["readers"][reader]["weights"].items():
            yield experiment.reader_folder(reader, sigma), file, experiment.reader(reader, sigma)


def publish(weights: Path, target: Path, recipe: dict[str, Any]) -> None:
    """Round a network's weights to half precision and write them with what made them."""
    tensors = {
        name: tensor.contiguous() if name == EXACT else tensor.half().contiguous()
        for name, tensor in read_tensors(weights).items()
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(save(tensors, metadata={"made_by": json.dumps(recipe)}))


def main() -> None:
    """Publish all networks of a configuration."""
    parser = argparse.ArgumentParser(prog="python -m studies.publish_weights", description=main.__doc__)
    parser.add_argument("config", help="the configuration, as config/fashion.yaml")
    for folder, target, recipe in networks(trained(parser.parse_args().config)):
        publish(Path(folder) / WEIGHTS, Path(target), recipe)
        print(f"{target}: {Path(target).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
