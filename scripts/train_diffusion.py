"""Train the diffusion model of an experiment whose networks are small."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from bootstrap import configure_logging

from adds.data.images import source_of, training_of
from adds.machine.memory import keep_freed_memory
from adds.models.training import CHECKPOINT, TrainingSettings, finish, train_diffusion


def main(recipe: dict[str, Any], source: Path | None, output: Any) -> None:
    folder = Path(output.weights).parent
    network, log = train_diffusion(
        *training_of(recipe["dataset"], source),
        unet=recipe["unet"],
        schedule=recipe["schedule"],
        timesteps=recipe["timesteps"],
        settings=TrainingSettings(**recipe["training"]),
        seed=recipe["seed"],
        checkpoint=folder / CHECKPOINT,
    )
    finish(network, recipe, folder)
    pd.DataFrame(log).to_csv(output.loss, index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "train_diffusion")
    torch.set_num_threads(snakemake.threads)
    keep_freed_memory()
    main(snakemake.params.recipe, source_of(snakemake.input.source), snakemake.output)
