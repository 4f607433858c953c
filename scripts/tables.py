"""Write the paper's two tables: certified accuracy at r = 0, and clean accuracy."""

from pathlib import Path
from typing import Any

import pandas as pd
from bootstrap import configure_logging

from adds.registry import BOUNDS, LABEL
from adds.results.accuracy import accuracy_table, is_certified
from adds.results.again import outcomes_again, seeds_errors
from adds.results.certified import by_bound
from adds.results.tables import accuracy_cells, beside_paper, partial_mark, write, write_note
from adds.sampling.job import SETTING

BY_LABEL = (
    "as their label. Only the label was asked about: an image that isn't counted may be wrong or a close call, there "
    "is no radius, and nobody could predict with it who doesn't know the label"
)
BESIDE_PAPER = (
    " In brackets the paper's value and our difference to it by the paper's bound. Both runs see the same images, so "
    "what is left to chance are the samples: * marks a difference that fresh samples of these images explain with a "
    "probability below 5%, by each image's probability of being counted again (from its counts). Where there are "
    "fewer than the paper's 250 images, the chance of choosing these is added."
)
NO_LABELS = "The images have no labels: nobody can say how many are right."


def main(
    certified: pd.DataFrame, counts: pd.DataFrame, paper: pd.DataFrame | None, folder: Path, params: dict[str, Any]
) -> None:
    bound, partial_of = params["bound"], params["partial_of"]
    shown = by_bound(certified, bound)
    images = "the" if partial_of is not None else shown["number"].nunique()
    mark, partial = partial_mark(shown, partial_of), partial_of is not None
    by_paper = shown if bound == LABEL else by_bound(certified, "cohen")
    labelled = bool(shown["correct"].notna().all())
    unknown = "" if labelled else ", right or wrong (no labels)"
    by = BY_LABEL if bound == LABEL else f"by {BOUNDS[bound].title} ({bound}){unknown}"
    rights = {"certified_accuracy": (is_certified(shown), is_certified(by_paper), f"certified at r = 0 {by}")}
    if labelled:
        what = "whose label has most of all samples, selection and estimation, whether or not certified"
        rights["clean_accuracy"] = (shown["top_correct"], by_paper["top_correct"], what)
    else:
        write_note(mark + NO_LABELS, stem=folder / "clean_accuracy")
    sizes = {key: params[key] for key in ("n0", "n", "alpha")}
    again = outcomes_again(counts, **sizes) if paper is not None and labelled else None
    for name, (right, right_by_paper, what) in rights.items():
        table = accuracy_table(right, shown)
        note = f"Percent of {images} images {what}. Exact binomial 95% intervals."
        if paper is not None:
            errors = seeds_errors(again, name) if again is not None else None
            table = beside_paper(table, accuracy_table(right_by_paper, by_paper), paper[[*SETTING, name]], errors)
            note += BESIDE_PAPER
        stem, cells = folder / name, accuracy_cells(table)
        write(table, cells, value="accuracy_percent", note=mark + note, partial=partial, stem=stem)


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
