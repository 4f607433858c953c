"""What a finished run tells in the terminal: verdicts, tables, where the time went, and where everything is."""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

from adds.registry import in_order, title
from adds.sampling.job import NETWORKS_TOOK

Row = dict[str, str]


def accuracy_cell(row: Row) -> str:
    """Write an accuracy with its interval, rounded outwards, and the paper's value where there is one."""
    low, high = math.floor(float(row["low_percent"])), math.ceil(float(row["high_percent"]))
    paper = f" paper {float(row['paper_percent']):.1f}" if row.get("paper_percent") else ""
    return f"{float(row['accuracy_percent']):.1f} [{low}, {high}]{paper}"


def paired_cell(row: Row) -> str:
    """Write a mean with its paired difference to the reference; the reference has none."""
    mean = f"{float(row['mean_percent']):.1f}"
    if _is_reference(row):
        return mean
    difference, low, high = (float(row[f"difference_{end}points"]) for end in ("", "low_", "high_"))
    return f"{mean} {difference:+.1f}±{(high - low) / 2:.1f}"


def _is_reference(row: Row) -> bool:
    """Tell whether a row has no difference: the reference's own, or of images that the reference doesn't have."""
    ends = row["difference_low_points"], row["difference_high_points"]
    return "" in ends or all(float(end) == 0 for end in ends)


SHOWN: dict[str, tuple[str, Callable[[Row], str]]] = {
    "certified_accuracy": ("Certified accuracy (%)", accuracy_cell),
    "clean_accuracy": ("Clean accuracy (%)", accuracy_cell),
    "true_class_probability": ("P(true class), mean (%)", paired_cell),
}
"""The tables that are shown: their titles, and how a cell is written."""


def time_in_networks(logs: Path, benchmarks: Path) -> list[str]:
    """Tell from the certification jobs' logs and benchmarks which part of their time the networks took."""
    told = [NETWORKS_TOOK.search(log.read_text(errors="replace")) for log in logs.glob("certify/**/*.log")]
    networks = sum(float(found[1]) for found in told if found)
    measured = [row for path in benchmarks.glob("certify/**/*.tsv") for row in path.read_text().splitlines()[1:]]
    total = sum(float(row.split("\t")[0]) for row in measured)
    if not networks or total < networks:  # no job drew, or an earlier run's logs are there still
        return []
    return [
        f"Networks took {networks:,.0f} of the certification jobs' {total:,.0f} s; "
        f"{100 * (1 - networks / total):.0f}% went elsewhere (start-up, noise, bookkeeping)."
    ]


def verdicts(claims: Path) -> list[str]:
    """Count the verdicts on the paper's claims, and list those that are decided."""
    with claims.with_suffix(".csv").open(newline="") as file:
        found = {row["claim"]: (row["claim_verdict"], row["text"]) for row in csv.DictReader(file)}
    counts = claims.read_text().splitlines()[0].removesuffix(".")
    decided = [f"  {verdict:13} {text}" for verdict, text in found.values() if verdict != "undecided"]
    return [f"The paper's claims: {counts} (why: {claims})", *decided, ""]


def rows_of(table: Path) -> list[Row]:
    """Return the rows of a table; none where it isn't there, or says only why it can't be."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def aligned(rows: list[Row], name: str, cell: Callable[[Row], str]) -> list[str]:
    """Write a table in columns: a method per line, a sigma per column."""
    sigmas = sorted({float(row["sigma"]) for row in rows})
    cells = {((row["method"], int(row["votes"])), float(row["sigma"])): cell(row) for row in rows}
    lines = [[name, *(f"sigma {sigma:g}" for sigma in sigmas)]]
    lines += [
        [title(*variant), *(cells.get((variant, sigma), "-") for sigma in sigmas)]
        for variant in in_order(variant for variant, _ in cells)
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def note(rows: list[Row], paired: list[Row], partial_of: int | None = None) -> str:
    """Say how to read the tables: on how many images they rest, of ``partial_of``, and what their intervals are."""
    images = sorted({int(row["images"]) for row in rows})
    of = " to ".join(map(str, dict.fromkeys((images[0], images[-1]))))
    of = f"{of} images" if partial_of is None else f"PARTIAL: {of} of {partial_of} images"
    references = {title(row["method"], int(row["votes"])) for row in paired if _is_reference(row)}
    to = f"; ± 95% of the paired difference to {references.pop()}" if len(references) == 1 else ""
    return f"{of}; [95% interval]{to}"


def other_looks(provenance: Path) -> list[str]:
    """Say how these samples were certified otherwise, if they were."""
    told = [
        f"{'at most ' if look['mode'] == 'sequential' else ''}n = {look['n']:,}, bound {look['bound']}"
        for look in json.loads(provenance.read_text())["other_looks"]
    ]
    ways = "; ".join(dict.fromkeys(told))
    return [f"These samples were also certified with {ways}: see {provenance} and docs/pitfalls.md."] if told else []


def summary(
    results: Path,
    logs: Path,
    benchmarks: Path,
    places: list[str],
    *,
    provenance: Path,
    claims: Path | None = None,
    partial_of: int | None = None,
) -> str:
    """Return the text; ``claims`` is the table of verdicts (.md, the .csv beside it), where there is one.

    ``places`` are pages to open first, and what else there is.
    """
    lines = verdicts(claims) if claims else []
    tables = {name: rows_of(results / "tables" / f"{name}.csv") for name in SHOWN}
    for name, rows in tables.items():
        lines += [*aligned(rows, *SHOWN[name]), ""] if rows else []
    if tables["certified_accuracy"]:
        lines.append(note(tables["certified_accuracy"], tables["true_class_probability"], partial_of))
    lines += other_looks(provenance)
    lines += time_in_networks(logs, benchmarks)
    lines.append(f"Results are in {results}/: {', '.join(places)}")
    return "\n".join(lines) + "\n"
