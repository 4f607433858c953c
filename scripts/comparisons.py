"""Write the tables that compare from the same counts: mean probability of the true class, and the two bounds."""

from pathlib import Path
from typing import Any

import pandas as pd

from adds.machine.logs import configure_logging
from adds.registry import in_order, title
from adds.results.accuracy import bounds_table, paired_table, true_class_shares
from adds.results.tables import bounds_cells, paired_cells, partial_mark, write, write_note


def reference_of(shares: pd.DataFrame) -> tuple[str, int]:
    """Carlini's method where it ran, else the first one."""
    variants = in_order(zip(shares["method"], shares["votes"], strict=True))
    return ("carlini", 1) if ("carlini", 1) in variants else variants[0]


def main(certified: pd.DataFrame, counts: pd.DataFrame, folder: Path, params: dict[str, Any]) -> None:
    partial_of = params["partial_of"]
    images = "the" if partial_of is not None else counts["number"].nunique()
    mark, partial = partial_mark(counts, partial_of), partial_of is not None
    labelled = bool(counts["label"].notna().all())
    stem = folder / "true_class_probability"
    if labelled:
        shares = true_class_shares(counts)
        reference = reference_of(shares)
        note = (
            f"Mean share (percent) of the true class in the estimation samples of {images} images; in brackets the "
            f"paired difference to {title(*reference)} with its 95% interval; best in bold."
        )
        table = paired_table(shares, reference)
        write(table, paired_cells(table), value="mean", note=mark + note, partial=partial, stem=stem)
    else:
        write_note(mark + "The images have no labels: nobody can say how many are right.", stem=stem)
    table = bounds_table(certified)
    clean = "(in brackets clean accuracy, which no certified accuracy can exceed)" if labelled else "(no labels)"
    note = (
        f"Percent of {images} images certified at r = 0, and their mean certified radius (0 where not), from the same "
        f"counts: bound cohen → bound pair {clean}; best pair in bold."
    )
    write(table, bounds_cells(table), value="pair", note=mark + note, partial=partial, stem=folder / "bounds")


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "comparisons")
    main(
        pd.read_parquet(snakemake.input.certificates),
        pd.read_parquet(snakemake.input.counts),
        Path(snakemake.output.bounds).parent,
        snakemake.params.tables,
    )
