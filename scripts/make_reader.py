"""Make a reader for one sigma: take the weights that are given for it, or train or fit it on training images."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bootstrap import configure_logging
from torch import Tensor

from adds.data.images import source_of, training_of
from adds.diffusion.schedule import model_sigma
from adds.machine.memory import keep_freed_memory
from adds.methods.carlini import denoise
from adds.models.pipeline import classifier_kind, load_pipeline, untrained_classifier
from adds.models.training import CHECKPOINT, See, TrainingSettings, finish, train_classifier

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


def make(recipe: Mapping[str, Any], source: Path | None, folder: Path) -> None:
    """Leave the reader's weights and description in its folder; ``source`` has the training images, if any."""
    if "training" not in recipe:  # it is given, or made of the training images themselves
        classifier_kind(recipe["kind"]).obtain(recipe, folder)
        return
    network, log = train_classifier(
        *training_of(recipe["dataset"], source),
        build=partial(untrained_classifier, recipe),
        settings=TrainingSettings(**recipe["training"]),
        seed=recipe["seed"],
        see=seen(recipe),
        checkpoint=folder / CHECKPOINT,
    )
    logger.info("%.1f%% of held-out images are right", 100 * log[-1]["held_out_accuracy"])
    finish(network, recipe, folder)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "make_reader {reader} sigma={sigma}".format(**snakemake.wildcards))
    torch.set_num_threads(snakemake.threads)
    keep_freed_memory()
    make(snakemake.params.recipe, source_of(snakemake.input.source), Path(snakemake.output.weights).parent)
