"""Draw the training losses of the embedded experiment."""

from pathlib import Path

import pandas as pd
from bootstrap import configure_logging

from adds.results.figures.loss import caption, draw
from adds.results.figures.style import look, save


def read(path: str, network: str) -> pd.DataFrame:
    log = pd.read_csv(path)
    held_out = log.columns[-1]
    renamed = log.rename(columns={held_out: "held_out"})
    return renamed.assign(network=network, held_out_name=held_out.replace("_", "-", 1).replace("_", " "))


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "loss_figure")
    table = pd.concat(
        [
            read(snakemake.input.diffusion, "diffusion model"),
            read(snakemake.input.classifier, "classifier"),
        ],
        ignore_index=True,
    )
    with look(snakemake.params.figure):
        save(draw(table), table, Path(snakemake.output.html).with_suffix(""), caption())
