"""Tables as .csv, .md, .tex and .html: methods in rows, sigmas in columns, the best in bold."""

from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from adds.registry import Variant, in_order, title
from adds.results.again import PAPER_IMAGES
from adds.sampling.job import SETTING

Cells = dict[tuple[Variant, float], str]

MISSING = "-"
"""What stands for a setting that has no results yet, in tables of partial results."""


def _best(table: pd.DataFrame, value: str) -> set[tuple[Variant, float]]:
    """Return the cells that hold the largest value of their sigma."""
    top = table.groupby("sigma")[value].transform("max")
    rows = table[table[value] == top]
    return {(Variant(row.method, row.votes), row.sigma) for row in rows.itertuples()}


def markdown(cells: Cells, best: set[tuple[Variant, float]], sigmas: list[float]) -> str:
    """Write the cells as a Markdown table."""
    variants = in_order(variant for variant, _ in cells)
    lines = ["| sigma | " + " | ".join(f"{sigma:g}" for sigma in sigmas) + " |"]
    lines.append("|---" * (len(sigmas) + 1) + "|")
    for variant in variants:
        row = [cells.get((variant, sigma), MISSING) for sigma in sigmas]
        bold = [(f"**{text}**" if (variant, sigma) in best else text) for text, sigma in zip(row, sigmas, strict=True)]
        lines.append(f"| {title(*variant)} | " + " | ".join(bold) + " |")
    return "\n".join(lines) + "\n"


def latex(cells: Cells, best: set[tuple[Variant, float]], sigmas: list[float]) -> str:
    """Write the cells as a LaTeX tabular in booktabs style."""
    variants = in_order(variant for variant, _ in cells)
    lines = [
        r"\begin{tabular}{l" + "c" * len(sigmas) + "}",
        r"\toprule",
        r"$\sigma$ & " + " & ".join(f"{sigma:g}" for sigma in sigmas) + r" \\",
        r"\midrule",
    ]
    for variant in variants:
        row = []
        for sigma in sigmas:
            text = cells.get((variant, sigma), MISSING).replace("%", r"\%").replace("→", r"$\to$")
            row.append(rf"\textbf{{{text}}}" if (variant, sigma) in best else text)
        lines.append(f"{title(*variant)} & " + " & ".join(row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def html(cells: Cells, best: set[tuple[Variant, float]], sigmas: list[float], note: str) -> str:
    """Write the cells as a page of its own, for the report."""
    cell = "td,th{padding:.35em .9em;border-bottom:1px solid #ddd;text-align:left}"
    style = "body{font-family:sans-serif;margin:2em}" + cell
    rows = ["<tr><th>sigma</th>" + "".join(f"<th>{sigma:g}</th>" for sigma in sigmas) + "</tr>"]
    for variant in in_order(variant for variant, _ in cells):
        row = f"<tr><th>{escape(title(*variant))}</th>"
        for sigma in sigmas:
            text = escape(cells.get((variant, sigma), MISSING))
            row += f"<td><b>{text}</b></td>" if (variant, sigma) in best else f"<td>{text}</td>"
        rows.append(row + "</tr>")
    table = "\n".join(rows)
    head = f'<meta charset="utf-8"><title>{escape(note)}</title><style>{style}</style>'
    body = f"<table>\n{table}\n</table><p>{escape(note)}</p>"
    return f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>\n"


def write(table: pd.DataFrame, cells: Cells, *, value: str, note: str, stem: Path | str, partial: bool = False) -> None:
    """Write one table in all formats; ``note`` says how to read it.

    In a table of ``partial`` results nothing is the best: its cells rest on different images.
    """
    sigmas = sorted(table["sigma"].unique())
    best = set() if partial else _best(table, value)
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(f"{stem}.csv", index=False)
    stem.with_suffix(".md").write_text(markdown(cells, best, sigmas) + "\n" + note + "\n")
    stem.with_suffix(".html").write_text(html(cells, best, sigmas, note))
    mark = "PARTIAL " if partial else ""
    stem.with_suffix(".tex").write_text(f"% {note}\n" + mark + latex(cells, best, sigmas))


def partial_mark(rows: pd.DataFrame, partial_of: int | None) -> str:
    """Say of tables of partial results how many images they rest on; ``rows`` has one per image and setting."""
    if partial_of is None:
        return ""
    sizes = rows.groupby(SETTING).size()
    return (
        f"PARTIAL: cells rest on {sizes.min()} to {sizes.max()} of {partial_of} images, not the same everywhere, "
        "and sequential sampling finishes easy ones first. "
    )


def write_note(note: str, *, stem: Path | str) -> None:
    """Write a note in all formats, in place of a table that can't be made."""
    write(pd.DataFrame(columns=["sigma"]), {}, value="", note=note, stem=stem, partial=True)


def accuracy_cells(table: pd.DataFrame) -> Cells:
    """Write accuracies in percent with their 95% intervals, and the paper's value where there is one."""
    cells = {}
    for row in table.itertuples():
        text = f"{100 * row.accuracy:.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}]"
        paper = getattr(row, "paper", float("nan"))
        if paper == paper:
            text += f" (paper {paper:.1f}, {row.difference:+.1f}{'' if row.within_error else '*'})"
        cells[Variant(row.method, row.votes), row.sigma] = text
    return cells


def paired_cells(table: pd.DataFrame) -> Cells:
    """Write mean probabilities of the true class, with the paired difference to the reference method."""
    cells = {}
    for row in table.itertuples():
        text = f"{100 * row.mean:.1f}"
        # The reference has no difference to itself, nor has what shares no image with it.
        if row.difference == row.difference and (row.difference_low != 0 or row.difference_high != 0):
            low, high = 100 * row.difference_low, 100 * row.difference_high
            text += f" ({100 * row.difference:+.1f} [{low:+.1f}, {high:+.1f}])"
        cells[Variant(row.method, row.votes), row.sigma] = text
    return cells


def bounds_cells(table: pd.DataFrame) -> Cells:
    """Write certified accuracy by cohen and by pair in percent, then clean accuracy, then both mean radii."""
    return {
        (Variant(row.method, row.votes), row.sigma): (
            f"{100 * row.cohen:.1f} → {100 * row.pair:.1f}"
            + ("" if pd.isna(row.clean) else f" ({100 * row.clean:.1f})")
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
        wrong = "" if pd.isna(row.wrong) else f", wrong {100 * row.wrong:.1f}"
        text = f"{' → '.join(parts)}; abstained {100 * row.abstained:.1f}{wrong}"
        cells[Variant(row.method, row.votes), row.sigma] = text
    return cells


def saving_cells(table: pd.DataFrame) -> Cells:
    """Write the saving as a factor, with the numbers of open images and of other decisions."""
    return {
        (Variant(row.method, row.votes), row.sigma): f"{row.saving:.0f}x ({row.open} open, {row.differs} differ)"
        for row in table.itertuples()
    }


def beside_paper(
    table: pd.DataFrame, ours: pd.DataFrame, paper: pd.DataFrame, errors: pd.DataFrame | None
) -> pd.DataFrame:
    """Add the paper's value (percent), the difference of ours to it, and whether chance alone explains it.

    ``ours`` holds our accuracies by the paper's bound, whichever bound the table shows. ``errors`` are the standard
    errors of fresh samples on the same images (`seeds_errors`). Where N is smaller than the paper's 250 images,
    sqrt(q (1 - q) / N (1 - N / 250)) is added, the error of choosing N of them. A difference is ``within_error`` where
    it is at most 1.96 standard errors. Without ``errors`` (images without labels) nothing is.
    """
    paper = paper.set_axis([*SETTING, "paper"], axis="columns")
    joined = table.merge(paper, on=SETTING, how="left")
    same_bound = joined[SETTING].merge(ours, on=SETTING, how="left")["accuracy"].to_numpy()
    theirs, images = joined["paper"] / 100, joined["images"]
    chosen = theirs * (1 - theirs) / images * (1 - images / PAPER_IMAGES).clip(lower=0)
    of_seeds = np.nan if errors is None else joined[SETTING].merge(errors, on=SETTING, how="left")["error"].to_numpy()
    error = np.sqrt(of_seeds**2 + chosen)
    difference = same_bound - theirs
    return joined.assign(
        difference=100 * difference, error=100 * error, within_error=difference.abs() <= 1.96 * error + 1e-9
    )
