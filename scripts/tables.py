"""Write the tables: certified accuracy at r = 0, clean accuracy, mean probability of the true class."""

from pathlib import Path
from typing import Any

import pandas as pd

from adds.machine.logs import configure_logging
from adds.registry import in_order, title
from adds.results.accuracy import accuracy_table, bounds_table, is_certified, paired_table, true_class_shares
from adds.results.certified import by_bound
from adds.results.tables import accuracy_cells, beside_paper, bounds_cells, paired_cells, write, write_note
from adds.sampling.job import SETTING


def reference_of(shares: pd.DataFrame) -> tuple[str, int]:
    """Carlini's method where it ran, else the first one."""
    variants = in_order(zip(shares["method"], shares["votes"], strict=True))
    return ("carlini", 1) if ("carlini", 1) in variants else variants[0]


def partial_mark(certified: pd.DataFrame, partial_of: int | None) -> str:
    """Say of tables of partial results how many images they rest on."""
    if partial_of is None:
        return ""
    sizes = certified.groupby(SETTING).size()
    return (
        f"PARTIAL: cells rest on {sizes.min()} to {sizes.max()} of {partial_of} images, not the same everywhere, "
        "and sequential sampling finishes easy ones first. "
    )


def main(
    certified: pd.DataFrame, counts: pd.DataFrame, paper: pd.DataFrame | None, folder: Path, params: dict[str, Any]
) -> None:
    shown, partial_of = by_bound(certified, params["bound"]), params["partial_of"]
    images = "the" if partial_of is not None else shown["number"].nunique()
    mark, partial = partial_mark(shown, partial_of), partial_of is not None
    labelled = bool(shown["correct"].notna().all())
    unknown = "" if labelled else ", right or wrong (no labels)"
    rights = {"certified_accuracy": (is_certified(shown), f"certified at r = 0 by bound {params['bound']}{unknown}")}
    if labelled:
        rights["clean_accuracy"] = (shown["correct"], "right, abstentions not counted")
    for name, (right, what) in rights.items():
        table = accuracy_table(right, shown)
        note = f"Percent of {images} images {what}, with exact binomial 95% intervals; best in bold."
        if paper is not None:
            by_cohen = by_bound(certified, "cohen")
            right_by_cohen = is_certified(by_cohen) if name == "certified_accuracy" else by_cohen["correct"]
            table = beside_paper(table, accuracy_table(right_by_cohen, by_cohen), paper[[*SETTING, name]])
            note += (
                " In brackets the paper's value and our difference to it by the paper's bound; * marks one that "
                f"is more than sampling {images} images explains (95%)."
            )
        write(table, accuracy_cells(table), value="accuracy", note=mark + note, partial=partial, stem=folder / name)
    if labelled:
        shares = true_class_shares(counts)
        reference = reference_of(shares)
        note = (
            f"Mean probability (percent) of the true class over {images} images; in brackets the paired difference to "
            f"{title(*reference)} with its 95% interval; best in bold."
        )
        table = paired_table(shares, reference)
        stem = folder / "true_class_probability"
        write(table, paired_cells(table), value="mean", note=mark + note, partial=partial, stem=stem)
    else:
        for name in ("clean_accuracy", "true_class_probability"):
            write_note(mark + "The images have no labels: nobody can say how many are right.", stem=folder / name)
    table = bounds_table(certified)
    clean = "(in brackets clean accuracy, which no certified accuracy can exceed)" if labelled else "(no labels)"
    note = (
        f"Percent of {images} images certified at r = 0 from the same counts: bound cohen → bound two_sided {clean}; "
        "best two_sided in bold."
    )
    write(table, bounds_cells(table), value="two_sided", note=mark + note, partial=partial, stem=folder / "bounds")


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "tables")
    paper = snakemake.input.get("paper")
    main(
        pd.read_parquet(snakemake.input.certificates),
        pd.read_parquet(snakemake.input.counts),
        pd.read_csv(paper) if paper else None,
        Path(snakemake.output.certified).parent,
        snakemake.params.tables,
    )
