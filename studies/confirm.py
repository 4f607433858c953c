"""What Fashion-MNIST's first 250 images suggested, put to the test on 1,000 others.

    python -m studies.confirm docs/fashion/counts_confirm.parquet docs/fashion/counts_confirm_tuned.parquet

prints two Markdown tables from the merged counts of config/fashion_confirm.yaml. The first has of every statement what
the first images suggested, the mean over the others with its 95% interval, a p-value of the paired differences
(`adds.results.claims.paired`), corrected for as many statements as there are (Holm, of all p-values for them and of all
against them: each kind of error has 5%), and whether it is confirmed. The first seven statements were fixed, as they
stand here, before any of the others was drawn; the last two, about sandals, when a reader of the first images' counts
had found that class, and so was a second p-value beside that of flipped signs, of which the larger one counts. Of the
others nothing had been looked at. The second table, of the lead in every class, tests nothing: it was made afterwards.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adds.registry import Variant
from adds.results.accuracy import true_class_shares
from adds.results.certified import radii_of_first_samples
from adds.results.claims.paired import LEVEL, Found, Test, holm, of_means
from adds.sampling.job import KEY

FIRST = (Path("docs/fashion/counts.parquet"), Path("docs/fashion/counts_tuned.parquet"))
"""The counts of the first images, with either classifier."""
CLASSES = Path("config/fashion_classes.csv")
SIGMA, ALPHA, BOUND = 1.5, 0.001, "cohen"
CLEAN, TUNED = "clean", "tuned"
CARLINI, ADDS, ONE_STEP, ON_NOISE = (
    Variant("carlini", 1),
    Variant("adds", 5),
    Variant("adds_oneshot", 1),
    Variant("rs_trained", 1),
)

SANDAL, ALL = 5, frozenset(range(10))

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Statement:
    """That the mean of one setting's measure, less the other's, is as ``test`` says.

    A lead is of a method over another, each with a classifier; where ``without`` is given, that lead is taken off.
    Images are those of some ``classes``.
    """

    text: str
    lead: tuple[tuple[Variant, str], tuple[Variant, str]]
    test: Test
    measure: str = "p_true"
    margin: float = 0.0
    without: tuple[tuple[Variant, str], tuple[Variant, str]] | None = None
    classes: frozenset[int] = ALL

    def differences(self, measured: pd.DataFrame) -> Values:
        """Return the difference of every image."""
        measured = measured[measured.index.get_level_values("label").isin(self.classes)]
        found = _lead(measured, self.measure, self.lead)
        return found if self.without is None else found - _lead(measured, self.measure, self.without)


def _lead(measured: pd.DataFrame, measure: str, lead: tuple[tuple[Variant, str], tuple[Variant, str]]) -> Values:
    own, other = (measured[measure, classifier, *variant] for variant, classifier in lead)
    return np.asarray(own - other, dtype=float)


STATEMENTS = (
    Statement(
        "With the clean classifier ADDS with 5 votes is ahead of Carlini et al.",
        ((ADDS, CLEAN), (CARLINI, CLEAN)),
        "more",
    ),
    Statement(
        "With the tuned classifier it is behind",
        ((ADDS, TUNED), (CARLINI, TUNED)),
        "less",
    ),
    Statement(
        "Its lead is smaller with the tuned classifier than with the clean one",
        ((ADDS, TUNED), (CARLINI, TUNED)),
        "less",
        without=((ADDS, CLEAN), (CARLINI, CLEAN)),
    ),
    Statement(
        "With the clean classifier it gains by unguided denoising with 5 votes, in place of one step",
        ((ADDS, CLEAN), (ONE_STEP, CLEAN)),
        "more",
    ),
    Statement(
        "With the tuned classifier it loses by that",
        ((ADDS, TUNED), (ONE_STEP, TUNED)),
        "less",
    ),
    Statement(
        "With the tuned classifier it is within 2 points of a classifier trained on noise",
        ((ADDS, TUNED), (ON_NOISE, CLEAN)),
        "within",
        margin=0.02,
    ),
    Statement(
        "With the clean classifier its average radius is smaller than Carlini et al.'s",
        ((ADDS, CLEAN), (CARLINI, CLEAN)),
        "less",
        measure="radius",
    ),
    Statement(
        "With the clean classifier it is ahead on sandals",
        ((ADDS, CLEAN), (CARLINI, CLEAN)),
        "more",
        classes=frozenset({SANDAL}),
    ),
    Statement(
        "and within 2 points on all other classes",
        ((ADDS, CLEAN), (CARLINI, CLEAN)),
        "within",
        margin=0.02,
        classes=ALL - {SANDAL},
    ),
)
"""What is tested, at sigma 1.5; differences between probabilities are in points."""


def measured(counts: pd.DataFrame) -> pd.DataFrame:
    """Return KEY, label, the share of the true class, and the radius that the same samples certify."""
    radii = counts[[*KEY, "label"]].assign(radius=radii_of_first_samples(counts, alpha=ALPHA, bound=BOUND))
    return true_class_shares(counts).merge(radii, on=KEY)


def read(clean: Path, tuned: Path) -> pd.DataFrame:
    """Return what was measured: a row per image (number, label), columns (measure, classifier, method, votes)."""
    parts = []
    for classifier, path in ((CLEAN, clean), (TUNED, tuned)):
        counts = pd.read_parquet(path)
        parts.append(measured(counts[counts["sigma"] == SIGMA]).assign(classifier=classifier))
    both = pd.concat(parts)
    return both.pivot(index=["number", "label"], columns=["classifier", "method", "votes"], values=["p_true", "radius"])


def tested_alone(statement: Statement, both: pd.DataFrame) -> Found:
    """Test a statement; probabilities can differ by 1, and no margin is asked of radii."""
    return of_means(statement.differences(both), statement.test, statement.margin, largest=1.0)


def verdicts(found: Sequence[Found]) -> list[tuple[str, float]]:
    """Say of every statement what became of it, and its corrected p-value: for it, or against it if that decides."""
    for_, against = (holm([getattr(one, p) for one in found]) for p in ("p_for", "p_against"))
    told = []
    for p, p_against in zip(for_, against, strict=True):
        if p <= LEVEL:
            told.append(("confirmed", p))
        elif p_against <= LEVEL:
            told.append(("contradicted", p_against))
        else:
            told.append(("open", p))
    return told


def shown(statement: Statement, found: Found) -> str:
    """Write what was found: probabilities in points, radii as they are."""
    scale, digits = (100, 1) if statement.measure == "p_true" else (1, 3)
    mean, low, high = (f"{scale * value:+.{digits}f}" for value in (found.estimate, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def lines(first: pd.DataFrame, others: pd.DataFrame) -> Iterator[str]:
    """Yield the table's lines."""
    yield f"| at sigma {SIGMA} | first {len(first):,} images | {len(others):,} others | p | |"
    yield "|---|---|---|---|---|"
    suggested, found = ([tested_alone(one, both) for one in STATEMENTS] for both in (first, others))
    for one, before, now, (verdict, p) in zip(STATEMENTS, suggested, found, verdicts(found), strict=True):
        p_value = "< 0.0001" if p < 0.0001 else f"{p:.2g}"
        yield f"| {one.text} | {shown(one, before)} | {shown(one, now)} | {p_value} | {verdict} |"


def of_classes(both: pd.DataFrame, names: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table of ADDS's lead over Carlini et al. in every class, with its 95% interval."""
    yield "| class | clean classifier | tuned classifier |"
    yield "|---|---|---|"
    for label, name in enumerate(names):
        classes = frozenset({label})
        leads = (
            Statement("", ((ADDS, classifier), (CARLINI, classifier)), "more", classes=classes)
            for classifier in (CLEAN, TUNED)
        )
        yield f"| {name} | {' | '.join(shown(lead, tested_alone(lead, both)) for lead in leads)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clean", type=Path, help="merged counts with the clean classifier")
    parser.add_argument("tuned", type=Path, help="merged counts with the tuned one")
    arguments = parser.parse_args()
    first, others = (read(*paths) for paths in (FIRST, (arguments.clean, arguments.tuned)))
    names = pd.read_csv(CLASSES).sort_values("label")["name"]
    print("\n".join([*lines(first, others), "", *of_classes(others, names)]))


if __name__ == "__main__":
    main()
