"""Train the embedded experiment's diffusion model; leave its weights, its loss and some of its samples."""

import numpy as np
import pandas as pd
import torch

from adds.descriptions import describe_model
from adds.digits import load_split
from adds.logs import configure_logging
from adds.memory import keep_freed_memory
from adds.schedule import Schedule
from adds.training import TrainingSettings, generate, train_diffusion

PICTURES = 60


def main(model: dict, training: dict, seed: int, settings: dict, output) -> None:
    train, test = load_split()
    network, log = train_diffusion(
        train,
        test,
        unet=model["unet"],
        schedule=model["schedule"],
        timesteps=model["timesteps"],
        settings=TrainingSettings(**training),
        seed=seed,
    )
    torch.save(network.state_dict(), output.weights)
    describe_model(output.weights, settings, output.description)
    pd.DataFrame(log).to_csv(output.loss, index=False)
    shape = tuple(train.images.shape[1:])
    schedule = Schedule.named(model["schedule"], model["timesteps"])
    samples = generate(network, schedule, steps=settings["steps"], count=PICTURES, shape=shape, seed=seed)
    np.save(output.samples, ((samples + 1) / 2).numpy())


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "train_diffusion")
    torch.set_num_threads(snakemake.threads)
    keep_freed_memory()
    main(
        **{key: snakemake.params[key] for key in ("model", "training", "seed")},
        settings=snakemake.config["diffusion"],
        output=snakemake.output,
    )
