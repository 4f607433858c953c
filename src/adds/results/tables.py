"""Tables as .csv, .md, .tex and .html: methods in rows, sigmas in columns, the best in bold."""

from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from adds.registry import PAPER_IMAGES, Variant, in_order, title
from adds.results.page import page
from adds.sampling.job import SETTING

Cell = tuple[Variant, float]
"""A row and a column: a variant at a sigma."""

Cells = dict[Cell, str]

MISSING = "-"
"""What stands for a setting that has no results yet, in tables of partial results."""

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"

LATEX_SIGNS = str.maketrans({SIGMA: r"$\sigma$", "→": r"$\to$", "<": "$<$", ">": "$>$"})
"""What LaTeX's text fonts lack, and pandas doesn't escape."""


def best_cells(table: pd.DataFrame, value: str) -> set[Cell]:
    """Return the cells that hold the largest value of their sigma as it is printed, unless more than half do."""
    digits = 1 if value.endswith("_percent") else 3
    shown = table[value].map(lambda number: float(f"{number:.{digits}f}"))
    largest = shown == shown.groupby(table["sigma"]).transform("max")
    few = largest.groupby(table["sigma"]).transform("mean") <= 0.5
    return {(Variant(row.method, row.votes), row.sigma) for row in table[largest & few].itertuples()}


def in_grid(cells: Cells, missing: str = MISSING) -> pd.DataFrame:
    """Lay the cells out: a row per variant, a column per sigma."""
    sigmas = sorted({sigma for _, sigma in cells})
    variants = in_order(variant for variant, _ in cells)
    rows = [[cells.get((variant, sigma), missing) for sigma in sigmas] for variant in variants]
    columns = pd.Index([f"{sigma:g}" for sigma in sigmas], name=SIGMA)
    return pd.DataFrame(rows, index=[title(*variant) for variant in variants], columns=columns)


def markdown(grid: pd.DataFrame) -> str:
    """Write a grid of cells as a Markdown table."""
    lines = ["| sigma | " + " | ".join(grid.columns) + " |", "|---" * (grid.shape[1] + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(row) + " |" for name, row in zip(grid.index, grid.to_numpy(), strict=True)]
    return "\n".join(lines) + "\n"


def latex(styler: Styler, column_format: str) -> str:
    """Write a table with its styles as a LaTeX tabular in booktabs style."""
    escaped = styler.format(escape="latex").format_index(escape="latex")
    tabular: str = escaped.to_latex(hrules=True, convert_css=True, column_format=column_format)
    return tabular.translate(LATEX_SIGNS)


def html(styler: Styler, name: str) -> str:
    """Write a table with its styles as HTML; no two tables of a page may have the same name."""
    escaped = styler.format(escape="html").format_index(escape="html")
    return f'<div class="scroll">\n{escaped.to_html(table_uuid=name)}</div>'


def write(
    table: pd.DataFrame,
    cells: Cells,
    *,
    note: str,
    stem: Path | str,
    value: str | None = None,
    by: str = "",
    partial: bool = False,
) -> None:
    """Write one table in all formats; ``note`` says how to read it.

    The largest ``value`` of a sigma is bold, if one is named; ``by`` tells readers which one of a cell's it is. In a
    table of ``partial`` results nothing is the best: its cells rest on different images.
    """
    best = set()
    if value is not None and not partial:
        best = best_cells(table, value)
        note += f" In bold the largest of each sigma{by}, unless more than half of the rows share it."
    grid = in_grid(cells)
    styles = in_grid({cell: "font-weight: bold" if cell in best else "" for cell in cells}, missing="")
    styler = grid.style.apply(lambda _: styles, axis=None)
    tabular = ("PARTIAL " if partial else "") + latex(styler, "l" + "c" * grid.shape[1])
    marked = grid.where(styles == "", "**" + grid + "**")
    _write_files(table, markdown(marked) + "\n", tabular, html(styler, Path(stem).name), note, Path(stem))


def write_note(note: str, *, stem: Path | str) -> None:
    """Write a note in all formats, in place of a table that can't be made."""
    _write_files(pd.DataFrame(columns=["sigma"]), "", "", "", note, Path(stem))


def _write_files(table: pd.DataFrame, markdown: str, tabular: str, body: str, note: str, stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(f"{stem}.csv", index=False)
    stem.with_suffix(".md").write_text(f"{markdown}{note}\n")
    stem.with_suffix(".tex").write_text(f"% {note}\n{tabular}")
    heading = stem.name.replace("_", " ").capitalize()
    stem.with_suffix(".html").write_text(page(heading, f'{body}\n<p class="note">{escape(note)}</p>'))


def partial_mark(rows: pd.DataFrame, partial_of: int | None) -> str:
    """Say of tables of partial results which images they rest on; ``rows`` has one per image and setting."""
    if partial_of is None:
        return ""
    sizes, images = rows.groupby(SETTING).size(), rows.groupby(SETTING)["number"].agg(frozenset)
    least_to_most = " to ".join(map(str, dict.fromkeys((sizes.min(), sizes.max()))))
    differing = ", not the same everywhere" if images.nunique() > 1 else ""
    easy = ", and sequential sampling finishes easy ones first" if (rows["stopped"] != "fixed").any() else ""
    return f"PARTIAL: cells rest on {least_to_most} of {partial_of} images{differing}{easy}. "


def accuracy_cells(table: pd.DataFrame) -> Cells:
    """Write accuracies in percent with their 95% intervals, and the paper's value where there is one."""
    cells = {}
    for row in table.itertuples():
        text = f"{row.accuracy_percent:.1f} [{row.low_percent:.1f}, {row.high_percent:.1f}]"
        paper = getattr(row, "paper_percent", float("nan"))
        if paper == paper:
            text += f" (paper {paper:.1f}, {row.difference_points:+.1f}{'' if row.within_error else '*'})"
        cells[Variant(row.method, row.votes), row.sigma] = text
    return cells


def paired_cells(table: pd.DataFrame) -> Cells:
    """Write mean probabilities of the true class, with the paired difference to the reference method."""
    cells = {}
    for row in table.itertuples():
        text = f"{row.mean_percent:.1f}"
        # The reference has no difference to itself, nor has what shares no image with it.
        difference, low, high = row.difference_points, row.difference_low_points, row.difference_high_points
        if difference == difference and (low != 0 or high != 0):
            text += f" ({difference:+.1f} [{low:+.1f}, {high:+.1f}])"
        cells[Variant(row.method, row.votes), row.sigma] = text
    return cells


def bounds_cells(table: pd.DataFrame) -> Cells:
    """Write certified accuracy by cohen and by pair in percent, then clean accuracy, then both mean radii."""
    return {
        (Variant(row.method, row.votes), row.sigma): (
            f"{row.cohen_percent:.1f} → {row.pair_percent:.1f}"
            + ("" if pd.isna(row.clean_percent) else f" ({row.clean_percent:.1f})")
            + f", r {row.radius_cohen:.3f} → {row.radius_pair:.3f}"
        )
        for row in table.itertuples()
    }


def radius_cells(table: pd.DataFrame) -> Cells:
    """Write both average radii with their paired differences, then the shares abstained and certified but wrong."""
    cells = {}
    for row in table.itertuples():
        parts = []
        for bound in ("cohen", "pair"):
            text = f"{getattr(row, bound):.3f}"
            low, high = (getattr(row, f"{bound}_{end}") for end in ("low", "high"))
            if low == low and (low != 0 or high != 0):  # not of the reference, nor of what shares no image with it
                text += f" ({getattr(row, f'{bound}_difference'):+.3f} [{low:+.3f}, {high:+.3f}])"
            parts.append(text)
        wrong = "" if pd.isna(row.wrong_percent) else f", wrong {row.wrong_percent:.1f}"
        text = f"{' → '.join(parts)}; abstained {row.abstained_percent:.1f}{wrong}"
        cells[Variant(row.method, row.votes), row.sigma] = text
    return cells


def saving_cells(table: pd.DataFrame) -> Cells:
    """Write the median samples of the decided images, and how many images are open."""
    cells = {}
    for row in table.itertuples():
        text = f"{row.median_samples:,.0f}" if row.decided else "-"
        text += f" ({row.open} of {row.images} open)" if row.open else ""
        cells[Variant(row.method, row.votes), row.sigma] = text
    return cells


def beside_paper(
    table: pd.DataFrame, ours: pd.DataFrame, paper: pd.DataFrame, errors: pd.DataFrame | None
) -> pd.DataFrame:
    """Add the paper's value (percent), the difference of ours to it (points), and whether chance alone explains it.

    ``ours`` holds our accuracies by the paper's bound, whichever bound the table shows. ``errors`` are the standard
    errors of fresh samples on the same images (`seeds_errors`), as shares. Where N is smaller than the paper's 250
    images, sqrt(q (100 - q) / N (1 - N / 250)) is added for q percent, the error of choosing N of them. A difference is
    ``within_error`` where it is at most 1.96 standard errors. Without ``errors`` (images without labels) nothing is.
    """
    paper = paper.set_axis([*SETTING, "paper_percent"], axis="columns")
    joined = table.merge(paper, on=SETTING, how="left")
    same_bound = joined[SETTING].merge(ours, on=SETTING, how="left")["accuracy_percent"].to_numpy()
    theirs, images = joined["paper_percent"], joined["images"]
    chosen = theirs * (100 - theirs) / images * (1 - images / PAPER_IMAGES).clip(lower=0)
    of_seeds = np.nan if errors is None else joined[SETTING].merge(errors, on=SETTING, how="left")["error"].to_numpy()
    error = np.sqrt((100 * of_seeds) ** 2 + chosen)
    difference = same_bound - theirs
    return joined.assign(
        difference_points=difference, error_points=error, within_error=difference.abs() <= 1.96 * error + 1e-7
    )
