"""Write the tables that compare from the same counts: the true class's probability, two bounds, average radii."""

from pathlib import Path
from typing import Any

import pandas as pd
from bootstrap import configure_logging

from adds.registry import in_order, title
from adds.results.accuracy import bounds_table, paired_table, radius_table, true_class_shares
from adds.results.tables import bounds_cells, paired_cells, partial_mark, radius_cells, write, write_note


def reference_of(counts: pd.DataFrame) -> tuple[str, int]:
    """Carlini's method where it ran, else the first one."""
    variants = in_order(zip(counts["method"], counts["votes"], strict=True))
    return ("carlini", 1) if ("carlini", 1) in variants else variants[0]


def main(certified: pd.DataFrame, counts: pd.DataFrame, folder: Path, params: dict[str, Any]) -> None:
    partial_of = params["partial_of"]
    images = "the" if partial_of is not None else counts["number"].nunique()
    mark, partial = partial_mark(counts, partial_of), partial_of is not None
    labelled = bool(counts["label"].notna().all())
    stem = folder / "true_class_probability"
    reference = reference_of(counts)
    if labelled:
        shares = true_class_shares(counts)
        first = "first estimation samples, as many of each," if params["at_most"] else "estimation samples"
        note = (
            f"Mean share (percent) of the true class in the {first} of {images} images; in brackets the "
            f"paired difference to {title(*reference)} with its 95% interval."
        )
        table = paired_table(shares, reference)
        write(table, paired_cells(table), value="mean_percent", note=mark + note, partial=partial, stem=stem)
    else:
        write_note(mark + "The images have no labels: nobody can say how many are right.", stem=stem)
    early = " Sampling stopped early, so these are the radii that were known by then." if params["at_most"] else ""
    table = bounds_table(certified)
    clean = "(in brackets clean accuracy, which no certified accuracy can exceed)" if labelled else "(no labels)"
    note = (
        f"Percent of {images} images certified at r = 0, and their mean certified radius (0 where not), from the same "
        f"counts: bound cohen → bound pair {clean}.{early}"
    )
    stem, cells = folder / "bounds", bounds_cells(table)
    write(table, cells, value="pair_percent", by=" by pair", note=mark + note, partial=partial, stem=stem)
    table = radius_table(certified, reference)
    note = (
        f"Average certified radius of {images} images, 0 where wrong or abstained from: bound cohen → bound pair, each "
        f"with the paired difference to {title(*reference)} and its 95% interval; then, by cohen, percent abstained "
        f"from and percent certified as a wrong class.{early}"
    )
    stem = folder / "average_certified_radius"
    cells = radius_cells(table)
    write(table, cells, value="pair", by=" by pair", note=mark + note, partial=partial, stem=stem)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "comparisons")
    main(
        pd.read_parquet(snakemake.input.certificates),
        pd.read_parquet(snakemake.input.counts),
        Path(snakemake.output.bounds).parent,
        snakemake.params.tables,
    )
