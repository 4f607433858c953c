"""Make a reader for one sigma: take the weights that are given for it, or train or fit it on training images."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from bootstrap import configure_logging
from torch import Tensor

from adds.data.images import training_of
from adds.diffusion.schedule import model_sigma
from adds.machine.memory import keep_freed_memory
from adds.methods.carlini import denoise
from adds.models.pipeline import classifier_kind, load_pipeline
from adds.models.training import See, TrainingSettings, train_classifier
from adds.models.weights import WEIGHTS, describe_model, save_weights

logger = logging.getLogger("adds.make_reader")


def seen(recipe: Mapping[str, Any]) -> See:
    """Return what a reader is trained on: noised images, or those denoised in one step."""
    sigma = recipe["sigma"]

    def noised(images: Tensor) -> Tensor:
        return images + model_sigma(sigma) * torch.randn_like(images)

    if recipe["reader"] == "noised":
        return noised
    size = recipe["training"]["batch_size"]
    pipeline = load_pipeline(
        {"diffusion": recipe["diffusion"], "classifier": recipe},
        {"diffusion": size, "classifier": size},
        {"diffusion": Path(recipe["denoiser"])},
        device=torch.device("cpu"),
    )

    def denoised(images: Tensor) -> Tensor:
        with torch.no_grad():
            return denoise(pipeline.denoiser, noised(images), sigma).clone()

    return denoised


def make(recipe: Mapping[str, Any], folder: Path) -> None:
    """Leave the reader's weights and description in its folder."""
    if "training" not in recipe:  # it is given, or made of the training images themselves
        classifier_kind(recipe["kind"]).obtain(recipe, folder)
        return
    train, held_out = training_of(recipe["dataset"])
    settings = TrainingSettings(**recipe["training"])
    network, log = train_classifier(train, held_out, settings=settings, seed=recipe["seed"], see=seen(recipe))
    logger.info("%.1f%% of held-out images are right", 100 * log[-1]["held_out_accuracy"])
    save_weights(network, folder / WEIGHTS, recipe)
    describe_model(folder, recipe)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "make_reader {reader} sigma={sigma}".format(**snakemake.wildcards))
    torch.set_num_threads(snakemake.threads)
    keep_freed_memory()
    make(snakemake.params.recipe, Path(snakemake.output.weights).parent)
