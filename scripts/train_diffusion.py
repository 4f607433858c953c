"""Train the embedded experiment's diffusion model."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from bootstrap import configure_logging

from adds.data.images import training_of
from adds.machine.memory import keep_freed_memory
from adds.models.training import TrainingSettings, train_diffusion
from adds.models.weights import describe_model, save_weights


def main(recipe: dict[str, Any], output: Any) -> None:
    train, held_out = training_of(recipe["dataset"])
    network, log = train_diffusion(
        train,
        held_out,
        unet=recipe["unet"],
        schedule=recipe["schedule"],
        timesteps=recipe["timesteps"],
        settings=TrainingSettings(**recipe["training"]),
        seed=recipe["seed"],
    )
    save_weights(network, output.weights, recipe)
    describe_model(Path(output.weights).parent, recipe)
    pd.DataFrame(log).to_csv(output.loss, index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "train_diffusion")
    torch.set_num_threads(snakemake.threads)
    keep_freed_memory()
    main(snakemake.params.recipe, snakemake.output)
