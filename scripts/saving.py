"""Replay the recorded samples: what sequential sampling would have saved, and for which images."""

from pathlib import Path

import pandas as pd

from adds.figures.samples_needed import draw
from adds.figures.style import look, save
from adds.logs import configure_logging
from adds.saving import replay_all, saving_table
from adds.tables import saving_cells, write


def main(snakemake) -> None:
    counts = pd.read_parquet(snakemake.input.counts).rename(columns={"index": "index_"})
    both = pd.read_parquet(snakemake.input.bounds)
    params = snakemake.params
    replayed = replay_all(counts, both[both["bound"] == "two_sided"], params.ledgers, alpha=params.alpha)
    table = saving_table(replayed)
    images = replayed["index"].nunique()
    note = (
        f"Evaluations of the paper's fixed n0 = 1,000 and n = 10,000 over those that sequential sampling needs to "
        f"decide r = 0 (two_sided, same alpha), over {images} images. In brackets: images that the recorded "
        "samples left open, which count at the full cost, and decisions that differ from this run's. "
        "Largest saving in bold."
    )
    write(table, saving_cells(table), value="saving", note=note, stem=Path(snakemake.output.table).with_suffix(""))
    with look(params.style):
        save(draw(replayed), replayed, Path(snakemake.output.png).with_suffix(""))


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "saving")
    main(snakemake)
