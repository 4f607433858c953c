"""Train the embedded experiment's classifier."""

import pandas as pd
import torch

from adds.descriptions import describe_model
from adds.digits import load_split
from adds.logs import configure_logging
from adds.memory import keep_freed_memory
from adds.training import TrainingSettings, train_classifier


def main(training: dict, seed: int, settings: dict, output) -> None:
    train, test = load_split()
    network, log = train_classifier(train, test, settings=TrainingSettings(**training), seed=seed)
    torch.save(network.state_dict(), output.weights)
    describe_model(output.weights, settings, output.description)
    pd.DataFrame(log).to_csv(output.loss, index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "train_classifier")
    torch.set_num_threads(snakemake.threads)
    keep_freed_memory()
    main(
        **{key: snakemake.params[key] for key in ("training", "seed")},
        settings=snakemake.config["classifier"],
        output=snakemake.output,
    )
