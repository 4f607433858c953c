"""Replay the recorded samples: what sequential sampling would have saved, and for which images."""

from pathlib import Path
from typing import Any

import pandas as pd

from adds.machine.logs import configure_logging
from adds.results.certified import by_bound
from adds.results.figures.samples_needed import draw
from adds.results.figures.style import look, save
from adds.results.savings import saving_table
from adds.results.tables import saving_cells, write
from adds.sampling.replay import replay_all


def main(params: dict[str, Any], inputs: Any, output: Any) -> None:
    counts, certified = pd.read_parquet(inputs.counts), pd.read_parquet(inputs.certificates)
    replayed = replay_all(counts, by_bound(certified, "pair"), params["ledgers"], alpha=params["alpha"])
    table = saving_table(replayed)
    images = replayed["number"].nunique()
    note = (
        f"Evaluations of the paper's fixed n0 = 1,000 and n = 10,000 over those that sequential sampling needs to "
        f"decide r = 0 (pair, same alpha), over {images} images. In brackets: images that the recorded "
        "samples left open, which count at the full cost, and decisions that differ from this run's. "
        "Largest saving in bold."
    )
    write(table, saving_cells(table), value="saving", note=note, stem=Path(output.table).with_suffix(""))
    with look(params):
        save(draw(replayed), replayed, Path(output.png).with_suffix(""))


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "savings")
    main(snakemake.params.figure, snakemake.input, snakemake.output)
