"""The report: one page that opens on the result, then shows everything else, each figure and table with its caption."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from adds.results.claims.verdict import VERDICTS
from adds.results.page import body_of, page

NAMES = {
    "pipeline": "How ADDS works: one trajectory",
    "certified_accuracy": "Certified accuracy (Table 1)",
    "clean_accuracy": "Clean accuracy (Table 2)",
    "claims": "All claims of the paper, with their contrasts",
    "certified_accuracy_votes": "Certified accuracy against radius, votes: ",
    "runtime": "What a sample costs",
    "vote_distribution": "How voting moves the class counts",
    "denoised_sigma": "Denoised images, sigma ",
    "true_class_probability": "Probability of the true class",
    "bounds": "Two bounds on the same counts",
    "average_certified_radius": "Average certified radius",
    "savings": "Samples that sequential sampling needs, per setting",
    "samples_needed": "Samples that sequential sampling needs, per image",
    "budget": "How the privacy budget is spent",
    "samples": "Samples of the diffusion model",
    "loss": "Training",
}
"""Headings; what follows a name in a file's (votes, a sigma) follows in the heading."""

HOW_TO_READ = (
    "Sigma and every radius are l2 sizes in [0, 1] pixel units. A method classifies many noisy samples of an image. "
    "The class that leads among the selection samples is its prediction; the estimation samples bound how far it "
    "leads. Certified at radius r: with probability 1 - alpha over the samples, the smoothed classifier's class is "
    "this one for every change of the image smaller than r; at r = 0 it says no more than that the class leads. Where "
    "that can't be shown the method abstains. Certified accuracy counts images that are certified and right, clean "
    "accuracy those that are right, certified or not. RS is randomized smoothing without a denoiser; a vote is one of "
    "several denoisings of a sample, of which the majority counts; ADDS without unguided denoising classifies one "
    "prediction where its budget is spent."
)


def heading(name: str) -> str:
    """Return the heading of a figure or table."""
    if name in NAMES:
        return NAMES[name]
    known = max((key for key in NAMES if name.startswith(key)), key=len)
    return NAMES[known] + name.removeprefix(known)


def verdicts(claims: pd.DataFrame) -> str:
    """Return the verdicts in short: how many of which kind, and the claims that are decided.

    ``claims`` is the claims' table as it is written: a row per contrast, with its claim's text and verdict.
    """
    found = claims.drop_duplicates("claim")
    numbers = Counter(found["claim_verdict"])
    words = {"holds": "holds" if numbers["holds"] == 1 else "hold"}
    told = " · ".join(f'<b class="{kind}">{numbers[kind]} {words.get(kind, kind)}</b>' for kind in VERDICTS)
    decided = [
        f'<li><b class="{row.claim_verdict}">{row.claim_verdict}</b>: {escape(row.text)}</li>'
        for kind in VERDICTS[:2]
        for row in found[found["claim_verdict"] == kind].itertuples()
    ]
    rest = '<p><a href="#tables-claims">All claims, with what decided them and what would decide the others</a></p>'
    return f"<p>Of {len(found)} claims of the paper: {told}</p><ul>{''.join(decided)}</ul>{rest}"


def made_by(provenance: Mapping[str, Any], config: str) -> str:
    """Return what made the results, and the configuration as it was understood."""
    versions = ", ".join(f"{name} {number}" for name, number in provenance["versions"].items())
    rows = [("Date", provenance["date"]), ("Commit", provenance["commit"] or "not in a git repository")]
    rows += [("Device", ", ".join(provenance["devices"])), ("Versions", versions)]
    rows += [(f"Network {name}", f"sha256 {checksum}") for name, checksum in provenance["models"].items()]
    rows += [(f"List {name}", f"sha256 {checksum}") for name, checksum in provenance["lists"].items()]
    rows += [("Another look", told) for told in map(looked, provenance.get("other_looks", []))]
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    folded = f"<details><summary>The configuration, every key</summary><pre>{escape(config)}</pre></details>"
    return f'<div class="scroll"><table>{table}</table></div>{folded}'


def looked(look: Mapping[str, Any]) -> str:
    """Return how samples of this run were certified otherwise: choosing between looks spends alpha for each."""
    most = "at most " if look["mode"] == "sequential" else ""
    asked = f", questions {json.dumps(look['questions'])}" if "questions" in look else ""
    return (
        f"These samples, or some of them, were certified with {most}n = {look['n']:,}, bound {look['bound']}, alpha = "
        f"{look['alpha']:g}{asked} too ({look['experiment']}, {look['date']}). If what differs was chosen "
        "after seeing that, this run's level is no longer alpha: every look spends it again."
    )


def _section(heading: str, content: str, level: int = 2, name: str = "") -> str:
    """Return a part of the page, which links find by its name or heading."""
    anchor = escape((name or heading).replace(" ", "-"))
    return f'<section id="{anchor}"><h{level}>{escape(heading)}</h{level}>{content}</section>'


def _shown(results: Path, folder: str, name: str) -> str:
    """Return a table or figure with its heading and links to its files."""
    suffixes = ("pdf", "png", "csv") if folder == "figures" else ("csv", "md", "tex")
    links = " · ".join(f'<a href="{folder}/{name}.{suffix}">{suffix}</a>' for suffix in suffixes)
    body = body_of((results / folder / f"{name}.html").read_text())
    return _section(heading(name), f'{body}<p class="files">{links}</p>', level=3, name=f"{folder}-{name}")


STYLE = """<style>
nav a { margin-right: 1em } section { margin-top: 1.2rem } .files { font-size: 13px; margin-top: -.6rem }
pre { font-size: 12px }
</style>"""


def report(
    results: Path,
    *,
    title: str,
    facts: str,
    first: Sequence[tuple[str, str]],
    parts: Mapping[str, Sequence[tuple[str, str]]],
    claims: pd.DataFrame | None,
    provenance: Mapping[str, Any],
    config: str,
    explorer: bool,
) -> str:
    """Return the page: verdicts, what comes ``first``, what was run on what, how to read it, then the other ``parts``.

    What is shown is named by folder and name: ("tables", "certified_accuracy").
    """
    links = ['<a href="explorer.html">Explore the images one by one</a>'] if explorer else []
    links.append('<a href="certificates.csv">Every certificate</a>')
    decided = "" if claims is None else verdicts(claims)
    sections = {
        "Result": f"{decided}<p>{' · '.join(links)}</p>" + "".join(_shown(results, *entry) for entry in first),
        "What was run": made_by(provenance, config),
        "How to read it": f'<p class="note">{escape(HOW_TO_READ)}</p>',
        **{part: "".join(_shown(results, *entry) for entry in entries) for part, entries in parts.items()},
    }
    nav = "".join(f'<a href="#{escape(name.replace(" ", "-"))}">{escape(name)}</a>' for name in sections)
    head = f"{STYLE}<h1>{escape(title)}</h1><p>{escape(facts)}</p><nav>{nav}</nav>"
    return page(title, "\n".join([head, *(_section(name, content) for name, content in sections.items())]))
