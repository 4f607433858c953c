"""The claims tested on the paper's own published numbers, where these suffice.

    python -m adds.results.claims.published        prints the table of docs/claims.md
    python -m adds.results.claims.published FILE   writes every contrast as CSV

Two tables of 18 percentages each are printed, of 250 images. They tell how many images each setting has right, but not
which: the pairs that differ between two settings can be any number from |a - b| to min(a + b, 500 - a - b) for a and b
right ones. A verdict is given only where it is the same for all of them; besides, every printed difference goes the
claimed way or doesn't.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from adds.registry import PAPER_IMAGES
from adds.results.claims.claim import Claim, Contrast, Part, read_claims
from adds.results.claims.paired import Found, Test, of_shares
from adds.results.claims.verdict import ONE_OF, Printed, Row, beside, blank, filled, judge, requirements

CLAIMS, TABLES = Path("config/claims.yaml"), Path("config/paper_tables.csv")
NOT_PRINTED = "numbers that aren't printed"
NOT_BY_IMAGE = "each image's result"


def for_all_pairings(part: Part, first: int, second: int, images: int) -> Found:
    """Test two numbers of right images by the least favourable number of pairs that differ, for and against."""
    fewest, most = abs(first - second), min(first + second, 2 * images - first - second)
    found = []
    for pairs in (fewest, most):
        more, fewer = (pairs + first - second) // 2, (pairs - first + second) // 2
        yes = np.arange(images)
        found.append(of_shares(yes < more, (yes >= more) & (yes < more + fewer), cast("Test", part.test), part.margin))
    return replace(
        found[1], p_for=max(one.p_for for one in found), p_against=max(one.p_against for one in found), discordant=None
    )


def on_paper(claims: list[Claim], published: Printed) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row per claim and a row per contrast, with how many printed differences go the claimed way."""
    sigmas = published.sigmas

    def test(claim: Claim, contrast: Contrast) -> Row:
        part, difference = contrast.part, published.difference(contrast, sigmas)
        row = beside(blank(claim, contrast), part, difference)
        if difference != difference:
            return replace(row, needs=NOT_PRINTED)
        if contrast.sigma is None or contrast.than is None:
            return replace(row, needs=NOT_BY_IMAGE)
        first, second = (
            round(published.values[variant, contrast.sigma, part.measure] * PAPER_IMAGES / 100)
            for variant in (contrast.of, contrast.than)
        )
        found = for_all_pairings(part, first, second, PAPER_IMAGES)
        return filled(row, found, requirements(claim, sigmas))

    summaries, rows = judge(claims, sigmas, test)
    required = rows[(rows["verdict"] != ONE_OF) & rows["paper_agrees"].notna()]
    grouped = required.groupby("claim")["paper_agrees"]
    summaries["printed"] = summaries["claim"].map(grouped.size()).fillna(0).astype(int)
    summaries["agree"] = summaries["claim"].map(grouped.sum()).fillna(0).astype(int)
    return summaries, rows


def markdown(claims: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Write a row per claim: how many printed differences go the claimed way, which don't, and the verdict."""
    lines = [
        "| claim | printed differences that go the claimed way | those that don't | verdict |",
        "|---|---|---|---|",
    ]
    for _, claim in claims.iterrows():
        own = rows[(rows["claim"] == claim["claim"]) & (rows["verdict"] != ONE_OF)]
        others = [_told(row) for row in own.itertuples() if row.paper_agrees is False]
        shown = f"{claim['agree']} of {claim['printed']}" if claim["printed"] else "none printed"
        verdict = claim["verdict"] if claim["printed"] else "-"
        lines.append(f"| {claim['text']} | {shown} | {'; '.join(others)} | {verdict} |")
    return "\n".join(lines) + "\n"


def _told(row: object) -> str:
    """Say which printed difference doesn't go the claimed way."""
    sigma = getattr(row, "sigma", None)
    where = "" if pd.isna(sigma) else f" at {sigma:g}"
    difference = getattr(row, "paper", float("nan"))
    number = "" if pd.isna(difference) else f": {difference:+.1f}"
    return f"{getattr(row, 'measure', '')}, {getattr(row, 'contrast', '')}{where}{number}"


if __name__ == "__main__":
    found_claims, found_rows = on_paper(read_claims(CLAIMS), Printed(pd.read_csv(TABLES)))
    if len(sys.argv) > 1:
        shown = ["claim", "sigma", "contrast", "measure", "test", "margin", "paper", "paper_agrees", "p", "p_against"]
        found_rows[found_rows["paper_agrees"].notna()][shown].to_csv(sys.argv[1], index=False, float_format="%.4g")
    else:
        print(markdown(found_claims, found_rows), end="")
