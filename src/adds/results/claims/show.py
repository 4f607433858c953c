"""The claims' table as .csv (a row per contrast), .md, .tex and .html (a row per claim, and all contrasts)."""

from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from adds.results import tables
from adds.results.claims.verdict import counted
from adds.results.page import page

NOTE = (
    "A claim holds when each of its contrasts does (5%), is contradicted when one of them is (5% after Holm over the "
    "claim), else it is undecided. Images are the same for all methods, so tests are paired; certified is by the "
    "paper's bound. The paper's own differences stand at the sigma of the same rank. docs/claims.md explains the tests."
)


MANY = 10_000
"""Images beyond which nobody asks how many exactly."""


def reason(claim: pd.Series) -> str:
    """Say in a few words what a claim's verdict rests on."""
    words = f"{claim['contrasts_holds']} of {claim['contrasts']} contrasts hold"
    if claim["contrasts_contradicted"]:
        words += f", {claim['contrasts_contradicted']} contradicted"
    if claim["verdict"] == "undecided":
        if claim["needs"]:
            words += f"; needs {claim['needs']}"
        if claim["images_needed"] == claim["images_needed"]:
            words += f"; {_number_of_images(claim['images_needed'])}"
    return words


def _number_of_images(needed: float) -> str:
    if needed == float("inf"):
        return "one shows no difference at all"
    return f"about {needed:,.0f} images would decide" if needed <= MANY else f"needs more than {MANY:,} images"


def write_claims(claims: pd.DataFrame, contrasts: pd.DataFrame, *, stem: Path | str) -> None:
    """Write the table in all formats; its first line counts verdicts, for the terminal's summary."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    texts = claims[["claim", "text", "where", "verdict"]].rename(columns={"verdict": "claim_verdict"})
    contrasts.merge(texts, on="claim").to_csv(f"{stem}.csv", index=False)
    stem.with_suffix(".md").write_text(f"{markdown(claims)}\n{contrasts_markdown(contrasts)}")
    stem.with_suffix(".tex").write_text(latex(claims))
    stem.with_suffix(".html").write_text(html(claims, contrasts))


def markdown(claims: pd.DataFrame) -> str:
    """Write a row per claim in Markdown."""
    lines = [f"{counted(claims)}.", "", "| claim | where | the paper's own | verdict | why |", "|---|---|---|---|---|"]
    for _, claim in claims.iterrows():
        cells = (claim["text"], claim["where"], claim["paper"], f"**{claim['verdict']}**", reason(claim))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", NOTE]) + "\n"


def contrasts_markdown(rows: pd.DataFrame) -> str:
    """Write a row per contrast in Markdown."""
    lines = ["| claim | " + " | ".join(CONTRAST) + " |", "|---" * (len(CONTRAST) + 1) + "|"]
    lines += [f"| {row.claim} | " + " | ".join(_cells(row)) + " |" for row in rows.itertuples()]
    return "\n".join(lines) + "\n"


def latex(claims: pd.DataFrame) -> str:
    """Write a row per claim as a LaTeX tabular in booktabs style."""
    held = [f"{claim['contrasts_holds']} of {claim['contrasts']}" for _, claim in claims.iterrows()]
    shown = claims[["text", "verdict"]].assign(held=held).set_axis(["claim", "verdict", "contrasts that hold"], axis=1)
    tabular = tables.latex(shown.style.hide(axis="index"), r"p{0.5\linewidth}ll")
    return f"% {counted(claims)}. {NOTE}\n{tabular}"


def html(claims: pd.DataFrame, contrasts: pd.DataFrame) -> str:
    """Write a page of its own, for the report: every claim with its verdict, its contrasts folded below it."""
    rows = []
    for _, claim in claims.iterrows():
        own = [_cells(row) for row in contrasts[contrasts["claim"] == claim["claim"]].itertuples()]
        # In one line: pandas would show a cell's line breaks as \n.
        table = pd.DataFrame(own, columns=CONTRAST).to_html(index=False, border=0).replace("\n", "")
        mark = f'<b class="{claim["verdict"]}">{claim["verdict"]}</b>'
        source = f"<small>({escape(claim['where'])}; paper: {escape(claim['paper'])})</small>"
        # Else unfolded contrasts would leave it no room.
        text = f'<div style="min-width:20rem">{escape(claim["text"])} {source}</div>'
        folded = f"<details><summary>{escape(reason(claim))}</summary>{table}</details>"
        rows.append((mark, text, folded))
    table = pd.DataFrame(rows, columns=["verdict", "claim", "why"]).to_html(index=False, border=0, escape=False)
    body = f'<p><b>{escape(counted(claims))}.</b></p>\n<div class="scroll">\n{table}\n</div>'
    return page("Claims", f'{body}\n<p class="note">{escape(NOTE)}</p>')


CONTRAST = (
    "sigma",
    "contrast",
    "measure",
    "test",
    "estimate [95%]",
    "paper",
    "images",
    "discordant",
    "p",
    "p against, Holm",
    "verdict",
    "smallest seen",
    "images needed",
)


def _cells(row: Any) -> tuple[str, ...]:
    """Return a contrast's cells, in the order of CONTRAST."""
    found = "-" if pd.isna(row.estimate) else f"{row.estimate:+.3g} [{row.low:+.3g}, {row.high:+.3g}] {row.unit}"
    open_ = row.verdict == "undecided"
    return (
        _told(row.sigma, "g"),
        row.contrast,
        row.measure.replace("_", " "),
        row.test.replace("_", " "),
        found,
        _told(row.paper, "+.1f"),
        str(row.images),
        _told(row.discordant, ".0f"),
        _told(row.p, ".2g"),
        _told(row.p_holm, ".2g"),
        f"needs {row.needs}" if row.needs else row.verdict,
        _told(row.smallest_seen, ".2g") if open_ else "",
        _told(row.images_needed, ",.0f") if open_ else "",
    )


def _told(value: float | None, form: str) -> str:
    return "" if value is None or pd.isna(value) else format(value, form)
