"""From measures of images to verdicts: a row per contrast, a row per claim."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Literal, cast

import numpy as np
import pandas as pd

from adds.registry import Variant, title
from adds.results.claims.claim import AMONG, POSSIBLE, Claim, Contrast, Part, contrasts
from adds.results.claims.measures import EASY, LARGEST, UNITS, YES_OR_NO, Measured, changes_by_voting, confirmed
from adds.results.claims.paired import (
    LEVEL,
    Found,
    Test,
    holm,
    never,
    of_means,
    of_shares,
)

Verdict = Literal["holds", "contradicted", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("holds", "contradicted", "undecided")

ONE_OF = "one of several"
"""Stands for the verdict of a contrast of which only the best counts; the row that follows them has the verdict."""

FEWEST = 5
"""Images below which a contrast isn't tested at all."""


@dataclass(frozen=True)
class Row:
    """A contrast with what was found, as the table shows it. Points are told as hundredths."""

    claim: str
    family: str
    sigma: float | None
    contrast: str
    measure: str
    test: str
    margin: float | None
    unit: str
    estimate: float = np.nan
    low: float = np.nan
    high: float = np.nan
    images: int = 0
    discordant: int | None = None
    p: float = np.nan
    p_against: float = np.nan
    p_holm: float = np.nan
    paper: float = np.nan
    paper_agrees: bool | None = None
    """Whether the difference that the paper prints goes the claimed way."""
    verdict: str = "undecided"
    smallest_seen: float = np.nan
    images_needed: float = np.nan
    needs: str = ""


def evaluate(
    claims: Sequence[Claim],
    measured: Measured,
    *,
    tables: Mapping[str, pd.DataFrame] | None = None,
    published: "Printed | None" = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Test every claim; return a row per claim and a row per contrast.

    ``tables`` hold measures of images in other experiments, by the names that claims ask for. ``published`` are the
    paper's numbers, shown beside ours where a run has as many sigmas: the smallest beside the smallest.
    """
    sigmas = measured.sigmas

    def test(claim: Claim, contrast: Contrast) -> Row:
        found = find(contrast, measured, tables or {})
        row = blank(claim, contrast)
        if published is not None:
            row = beside(row, contrast.part, published.difference(contrast, sigmas))
        if isinstance(found, str):
            return replace(row, needs=found)
        return filled(row, found, requirements(claim, sigmas))

    return judge(claims, sigmas, test)


Tester = Callable[[Claim, Contrast], Row]
"""Makes a contrast's test; the verdict is given later."""


def judge(claims: Sequence[Claim], sigmas: Sequence[float], test: Tester) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make every claim's tests and give the verdicts: a row per claim and a row per contrast."""
    summaries, rows = [], []
    for claim in claims:
        of_claim = with_verdicts([row for part in claim.parts for row in _part(claim, part, sigmas, test)])
        rows += of_claim
        summaries.append(_summary(claim, of_claim))
    return pd.DataFrame(summaries), pd.DataFrame([asdict(row) for row in rows])


def counted(claims: pd.DataFrame) -> str:
    """Say how many claims have which verdict."""
    numbers = [int((claims["verdict"] == verdict).sum()) for verdict in VERDICTS]
    return f"{numbers[0]} hold{'s' if numbers[0] == 1 else ''}, {numbers[1]} contradicted, {numbers[2]} undecided"


def with_verdicts(rows: Sequence[Row]) -> list[Row]:
    """Give each of a claim's rows its verdict: it holds at 5%, or is contradicted at 5% after Holm over the claim."""
    tested = [row for row in rows if row.verdict != ONE_OF and row.p_against == row.p_against]
    adjusted = iter(holm([row.p_against for row in tested]))
    judged = []
    for row in rows:
        if row.verdict == ONE_OF or row.p_against != row.p_against:
            judged.append(row)
            continue
        p_holm = next(adjusted)
        verdict: Verdict = "holds" if row.p <= LEVEL else "contradicted" if p_holm <= LEVEL else "undecided"
        row = replace(row, p_holm=p_holm, verdict=verdict)
        judged.append(row if verdict == "undecided" else replace(row, smallest_seen=np.nan, images_needed=np.nan))
    return judged


def claim_verdict(verdicts: Sequence[str]) -> Verdict:
    """Return contradicted where one contrast is, holds where every one does, else undecided."""
    if "contradicted" in verdicts:
        return "contradicted"
    return "holds" if verdicts and set(verdicts) == {"holds"} else "undecided"


def _summary(claim: Claim, rows: Sequence[Row]) -> dict[str, object]:
    required = [row for row in rows if row.verdict != ONE_OF]
    numbers = {verdict: sum(row.verdict == verdict for row in required) for verdict in VERDICTS}
    needs = sorted({row.needs for row in required if row.needs})
    open_ = [row for row in required if row.verdict == "undecided" and row.images_needed == row.images_needed]
    return {
        "claim": claim.name,
        "text": claim.text,
        "where": claim.where,
        "family": claim.family,
        "paper": claim.paper,
        "verdict": claim_verdict([row.verdict for row in required]),
        "contrasts": len(required),
        **{f"contrasts_{verdict}": number for verdict, number in numbers.items()},
        "images_needed": max((row.images_needed for row in open_), default=np.nan),
        "needs": "; ".join(needs),
    }


def _part(claim: Claim, part: Part, sigmas: Sequence[float], test: Tester) -> list[Row]:
    rows: list[Row] = []
    groups: dict[tuple[Variant, float | None], list[Row]] = {}
    for contrast in contrasts(part, sigmas):
        row = test(claim, contrast)
        rows.append(replace(row, verdict=ONE_OF) if part.some else row)
        groups.setdefault((contrast.of, contrast.sigma), []).append(rows[-1])
    return [*rows, _best(claim, part, groups)] if part.some else rows


def _best(claim: Claim, part: Part, groups: Mapping[tuple[Variant, float | None], Sequence[Row]]) -> Row:
    """Combine contrasts of which one setting's at one sigma suffice, against all that they are compared with.

    A setting's p is the largest of its contrasts', Holm's over settings and sigmas makes that the smallest times
    their number. Against: for every setting one of its k contrasts speaks against it, at k times the smallest p.
    """
    words = f"{' or '.join(title(*of) for of in part.of)} - each of the others, at some sigma"
    row = Row(claim.name, claim.family, None, words, part.measure, part.test, None, UNITS[part.measure])
    all_rows = [row for group in groups.values() for row in group]
    if all(found.paper_agrees is not None for found in all_rows):
        row = replace(row, paper_agrees=any(all(found.paper_agrees for found in group) for group in groups.values()))
    lacking = next((found.needs for found in all_rows if found.needs), "")
    if lacking:
        return replace(row, needs=lacking)
    for_ = min(holm([max(found.p for found in group) for group in groups.values()]))
    against = max(min(holm([found.p_against for found in group])) for group in groups.values())
    nearest = min(groups.values(), key=lambda group: max(found.p for found in group))
    weakest = max(nearest, key=lambda found: found.p)
    return replace(
        row,
        images=weakest.images,
        p=for_,
        p_against=against,
        smallest_seen=weakest.smallest_seen,
        images_needed=weakest.images_needed,
    )


def blank(claim: Claim, contrast: Contrast) -> Row:
    """Return a contrast's row before its test."""
    part = contrast.part
    unit = UNITS[part.measure]
    scale = 100 if unit == "points" else 1
    across = ", per unit of sigma" if part.sigmas == "across" else ""
    return Row(
        claim.name,
        claim.family,
        contrast.sigma,
        contrast.words + across,
        part.measure,
        part.test,
        scale * part.margin if part.test in ("within", "not_less", "never") else None,
        unit,
    )


def beside(row: Row, part: Part, difference: float) -> Row:
    """Enter the difference that the paper prints (points), and whether it goes the claimed way."""
    if difference != difference:
        return row
    margin = 100 * part.margin
    agrees = {
        "more": difference > 0,
        "less": difference < 0,
        "within": abs(difference) <= margin,
        "not_less": difference >= -margin,
    }[part.test]
    return replace(row, paper=difference, paper_agrees=agrees)


def filled(row: Row, found: Found, tests: int) -> Row:
    """Enter what a test found; ``tests`` are the contrasts that the claim stands or falls with."""
    scale = 100 if row.unit == "points" else 1
    return replace(
        row,
        estimate=scale * found.estimate,
        low=scale * found.low,
        high=scale * found.high,
        images=found.images,
        discordant=found.discordant,
        p=found.p_for,
        p_against=found.p_against,
        smallest_seen=scale * found.smallest_seen,
        images_needed=found.images_needed(tests),
    )


def requirements(claim: Claim, sigmas: Sequence[float]) -> int:
    """Return how many contrasts a claim stands or falls with."""
    return sum(1 if part.some else len(list(contrasts(part, sigmas))) for part in claim.parts)


def find(contrast: Contrast, measured: Measured, tables: Mapping[str, pd.DataFrame]) -> Found | str:
    """Make a contrast's test, or say what it needs."""
    part = contrast.part
    if contrast.needs:
        return contrast.needs
    if part.table:
        return _of_table(contrast, tables.get(part.table))
    needed = measured.missing.get(part.measure) or (measured.missing.get("clean") if part.among else None)
    if needed:
        return needed
    if contrast.sigma is None:
        return _slope_over_sigma(contrast, measured)
    pair = _pair(contrast, measured, contrast.sigma)
    if isinstance(pair, str):
        return pair
    one, other = pair
    if part.against or part.test == "never":
        return _of_changes(contrast, one, other)
    one, other = _among(part, one, other)
    if len(one) < FEWEST:
        return f"{FEWEST} {part.among or ''} images".replace("  ", " ")
    second = None if contrast.than is None else other[part.measure]
    return _compare(part, one[part.measure], second, measured.largest.get(part.measure, math.inf))


def _pair(contrast: Contrast, measured: Measured, sigma: float) -> tuple[pd.DataFrame, pd.DataFrame] | str:
    """Return both settings' rows for the same images, or what didn't run."""
    name, frames = contrast.part.measure, []
    for variant in (contrast.of, contrast.than or contrast.of):
        frame = measured.of(variant, sigma)
        if frame is None:
            return title(*variant)
        if name in frame and frame[name].isna().any():
            frame = frame[frame[name].notna()]
        if frame.empty:
            return f"{name} of {title(*variant)}"
        frames.append(frame)
    one, other = frames
    if one.index.equals(other.index):
        return one, other
    shared = one.index.intersection(other.index)
    return one.loc[shared], other.loc[shared]


def _among(part: Part, one: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Keep the images that a part is about; which are easy is told by other samples than those that are compared."""
    if part.among is None:
        return one, other
    kept = {
        "right": lambda: one["clean"] & other["clean"],
        "easy": lambda: other["selected_true"] > EASY,
        "hard": lambda: other["selected_true"] <= EASY,
    }[part.among]()
    return one[kept], other[kept]


def _compare(part: Part, first: "pd.Series[float]", second: "pd.Series[float] | None", largest: float) -> Found:
    test = cast("Test", part.test)
    if part.measure in YES_OR_NO and second is not None:
        return of_shares(first.to_numpy(bool), second.to_numpy(bool), test, part.margin)
    differences = first if second is None else first.astype(float) - second.astype(float)
    return of_means(differences.to_numpy(float), test, part.margin, largest)


def _of_changes(contrast: Contrast, votes: pd.DataFrame, one: pd.DataFrame) -> Found | str:
    """Test what voting changes: one kind of change against another, or that a kind never happens."""
    part = contrast.part
    changes = changes_by_voting(votes, one)
    seen = changes[part.measure]
    if part.test == "never":
        could = int(changes[POSSIBLE].sum())
        if not could:
            return AMONG[POSSIBLE]
        return never(int(seen.sum()), could, part.margin, confirmed(votes, seen), looked_at=len(seen))
    other = changes[str(part.against)]
    return of_shares(seen.to_numpy(), other.to_numpy(), cast("Test", part.test), part.margin)


def slopes(values: pd.DataFrame) -> "pd.Series[float]":
    """Return each image's least-squares slope of its values (a row per image) over the columns' numbers."""
    x = np.asarray(values.columns, dtype=float)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return (values * weights).sum(axis=1)


def _slope_over_sigma(contrast: Contrast, measured: Measured) -> Found | str:
    """Test each image's slope over sigma of the difference of two settings."""
    columns = {}
    for sigma in measured.sigmas:
        pair = _pair(contrast, measured, sigma)
        if isinstance(pair, str):
            return pair
        first, second = (frame[contrast.part.measure].astype(float) for frame in pair)
        columns[sigma] = first - second if contrast.than else first
    values = pd.DataFrame(columns).dropna()
    if len(values) < FEWEST:
        return f"{FEWEST} images"
    return of_means(slopes(values).to_numpy(), cast("Test", contrast.part.test), contrast.part.margin)


def _of_table(contrast: Contrast, table: pd.DataFrame | None) -> Found | str:
    """Test on measures of other experiments: a slope over a column, or two values of an option."""
    part = contrast.part
    what = {"sweep": "a sweep of the guidance scale", "ablation": "the ablation of the noise's scale"}
    if table is None or part.measure not in table:
        return what.get(str(part.table), f"the table {part.table}")
    found = Measured(table).of(contrast.of, cast("float", contrast.sigma))
    if found is None:
        return f"{title(*contrast.of)} in {what.get(str(part.table))}"
    rows = found.reset_index()
    if part.slope:
        values = rows.pivot(index="number", columns=part.slope, values=part.measure).dropna()
        if values.shape[1] < 2 or len(values) < FEWEST:
            return what[str(part.table)]
        return of_means(slopes(values).to_numpy(), cast("Test", part.test), part.margin)
    for option, value in part.given.items():
        rows = rows[rows[option] == value]
    [(option, (one, other))] = part.option.items()
    values = rows.pivot(index="number", columns=option, values=part.measure)
    if not {one, other} <= set(values) or len(values.dropna()) < FEWEST:
        return what[str(part.table)]
    values = values.dropna()
    return _compare(part, values[one], values[other], LARGEST.get(part.measure, math.inf))


class Printed:
    """The numbers of the paper's two tables, in percent."""

    COLUMNS: ClassVar = {"certified": "certified_accuracy", "clean": "clean_accuracy"}

    def __init__(self, tables: pd.DataFrame) -> None:
        self.sigmas = sorted(float(sigma) for sigma in tables["sigma"].unique())
        self.values = {
            (Variant(row.method, row.votes), float(row.sigma), measure): float(getattr(row, column))
            for row in tables.itertuples()
            for measure, column in self.COLUMNS.items()
        }

    def difference(self, contrast: Contrast, sigmas: Sequence[float]) -> float:
        """Return the paper's own difference in points, where its tables have it; across sigmas, its slope.

        A run's sigmas, if they are as many, stand for the paper's in their order.
        """
        part = contrast.part
        untold = part.among or part.against or part.table or contrast.than is None or contrast.needs
        if part.measure not in self.COLUMNS or untold or len(sigmas) != len(self.sigmas):
            return float("nan")
        of = dict(zip(sigmas, self.sigmas, strict=True))
        wanted = self.sigmas if contrast.sigma is None else [of[contrast.sigma]]
        differences = [
            self.values[contrast.of, sigma, part.measure]
            - self.values[cast("Variant", contrast.than), sigma, part.measure]
            for sigma in wanted
        ]
        if contrast.sigma is not None:
            return round(differences[0], 6)
        return float(slopes(pd.DataFrame([differences], columns=wanted)).iloc[0])
