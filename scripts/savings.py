"""Replay the recorded samples: how many sequential sampling would have needed, and for which images."""

from pathlib import Path
from typing import Any

import pandas as pd
from bootstrap import configure_logging

from adds.results.certified import by_bound
from adds.results.figures.samples_needed import caption, draw
from adds.results.figures.style import look, save
from adds.results.savings import saving_note, saving_table
from adds.results.tables import saving_cells, write
from adds.sampling.replay import replay_all


def main(params: dict[str, Any], inputs: Any, output: Any) -> None:
    counts, certified = pd.read_parquet(inputs.counts), pd.read_parquet(inputs.certificates)
    replayed = replay_all(counts, by_bound(certified, "pair"), params["ledgers"], alpha=params["alpha"])
    table = saving_table(replayed)
    note = saving_note(table, params["alpha"])
    write(table, saving_cells(table), note=note, stem=Path(output.table).with_suffix(""))
    with look(params):
        save(draw(replayed), replayed, Path(output.html).with_suffix(""), caption(replayed, params["alpha"]))


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "savings")
    main(snakemake.params.figure, snakemake.input, snakemake.output)
