"""What a finished run tells in the terminal: verdicts, tables, where the time went, and where everything is."""

import csv
import re
from pathlib import Path

SHOWN = ("certified_accuracy", "clean_accuracy")


def time_in_networks(logs: Path, benchmarks: Path) -> list[str]:
    """Tell from the certification jobs' logs and benchmarks which part of their time the networks took."""
    told = [
        re.search(r"networks took ([\d.]+) of", log.read_text(errors="replace"))
        for log in logs.glob("certify/**/*.log")
    ]
    networks = sum(float(found[1]) for found in told if found)
    measured = [row for path in benchmarks.glob("certify/**/*.tsv") for row in path.read_text().splitlines()[1:]]
    total = sum(float(row.split("\t")[0]) for row in measured)
    if not networks or total < networks:  # on GPUs it can't be told
        return []
    return [
        f"Networks took {networks:,.0f} of the certification jobs' {total:,.0f} s; "
        f"{100 * (1 - networks / total):.0f}% went elsewhere (start-up, noise, bookkeeping)."
    ]


def verdicts(claims: Path) -> list[str]:
    """Tell the verdicts on the paper's claims, how many of which kind first."""
    with claims.with_suffix(".csv").open(newline="") as file:
        found = {row["claim"]: (row["claim_verdict"], row["text"]) for row in csv.DictReader(file)}
    told = claims.read_text().splitlines()[0]
    return [f"The paper's claims: {told}", "", *(f"{verdict:13} {text}" for verdict, text in found.values()), ""]


def summary(results: Path, logs: Path, benchmarks: Path, claims: Path | None = None) -> str:
    """Return the text; ``claims`` is the table of verdicts (.md, the .csv beside it), where there is one."""
    lines = verdicts(claims) if claims else []
    for name in SHOWN:
        table = results / "tables" / f"{name}.md"
        if table.exists():
            lines += [f"{name.replace('_', ' ').capitalize()} (%)", "", table.read_text()]
    lines += time_in_networks(logs, benchmarks)
    lines.append(f"Results are in {results}/: certificates.csv, figures/, tables/")
    return "\n".join(lines) + "\n"
