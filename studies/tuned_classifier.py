"""Does a method's lead over Carlini et al. depend on the classifier? The same images and samples with two of them.

    python -m studies.tuned_classifier docs/fashion/counts.parquet docs/fashion/counts_tuned.parquet

prints Markdown tables from the merged counts of two runs that differ in the classifier. Differences are of the mean
probability of the true class, from every image's first samples, in points, paired over images with 95% intervals: how
much every method gains by the second classifier, how its lead over Carlini et al. changes by that, what unguided
denoising with votes is worth, and how a classifier trained on noise compares. Two tables are of the average radius that
the same samples certify by the paper's bound: the lead over Carlini et al. The others count the images on which a
method is right and Carlini et al. aren't, against those of which the reverse is true, with the two-sided p-value of
McNemar's exact test, for both accuracies and either classifier.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest

from adds.registry import Variant, in_order, title
from adds.results.accuracy import is_certified, mean_interval, true_class_shares
from adds.results.certified import certificates, radii_of_first_samples
from adds.sampling.job import KEY

REFERENCE, YARDSTICK = Variant("carlini", 1), Variant("rs_trained", 1)
VOTED, ONE_STEP = Variant("adds", 5), Variant("adds_oneshot", 1)
ALPHA, BOUND = 0.001, "cohen"

Values = NDArray[np.float64]


def measured(counts: pd.DataFrame) -> pd.DataFrame:
    """Return a row per setting and image: KEY, p_true, certified (rightly, by the paper's bound), clean, radius."""
    table = certificates(counts, alpha=ALPHA, mode="sequential", bounds=[BOUND])
    verdicts = table[KEY].assign(certified=is_certified(table), clean=table["top_correct"])
    radii = counts[KEY].assign(radius=radii_of_first_samples(counts, alpha=ALPHA, bound=BOUND))
    return verdicts.merge(true_class_shares(counts), on=KEY).merge(radii, on=KEY)


class Run:
    """What was measured with one classifier."""

    def __init__(self, counts: pd.DataFrame) -> None:
        found = measured(counts)
        self.sigmas = sorted(float(sigma) for sigma in found["sigma"].unique())
        self.variants = in_order(zip(found["method"], found["votes"], strict=True))
        self._wide = found.pivot(index="number", columns=["method", "votes", "sigma"])

    def of(self, measure: str, variant: Variant, sigma: float) -> Values:
        """Return a measure of every image, by their numbers."""
        return np.asarray(self._wide[measure, *variant, sigma], dtype=float)


def in_points(differences: Values) -> str:
    """Write the mean difference of shares with its interval."""
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * x for x in mean_interval(differences)))


def in_radius(differences: Values) -> str:
    """Write the mean difference of radii with its interval."""
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*mean_interval(differences))


def won_and_lost(own: Values, other: Values) -> str:
    """Write on how many images only one of two methods is right, and McNemar's exact p-value."""
    won, lost = int((own > other).sum()), int((own < other).sum())
    p = binomtest(won, won + lost).pvalue if won + lost else 1.0
    return f"{won} : {lost} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"


def table(name: str, sigmas: Sequence[float], rows: Mapping[str, Callable[[float], str]]) -> Iterator[str]:
    """Yield a Markdown table: a column per sigma."""
    yield f"| {name} | {' | '.join(f'sigma {sigma:g}' for sigma in sigmas)} |"
    yield "|---" * (1 + len(sigmas)) + "|"
    for row, cell in rows.items():
        yield f"| {row} | {' | '.join(cell(sigma) for sigma in sigmas)} |"
    yield ""


def lines(clean: Run, tuned: Run) -> Iterator[str]:
    """Yield all tables, of the methods that both runs have."""
    runs = {"clean classifier": clean, "tuned classifier": tuned}
    shared = [variant for variant in clean.variants if variant in tuned.variants]
    others = [variant for variant in shared if variant != REFERENCE]

    def gain(variant: Variant, sigma: float) -> Values:
        return tuned.of("p_true", variant, sigma) - clean.of("p_true", variant, sigma)

    def of_each(
        variants: Sequence[Variant], cell: Callable[[Variant, float], str]
    ) -> dict[str, Callable[[float], str]]:
        return {title(*variant): partial(cell, variant) for variant in variants}

    def lead(one: Run, variant: Variant, other: Run, rival: Variant, sigma: float) -> str:
        return in_points(one.of("p_true", variant, sigma) - other.of("p_true", rival, sigma))

    def farther(run: Run, variant: Variant, sigma: float) -> str:
        return in_radius(run.of("radius", variant, sigma) - run.of("radius", REFERENCE, sigma))

    def accuracy(run: Run, measure: str, variant: Variant, sigma: float) -> str:
        return won_and_lost(run.of(measure, variant, sigma), run.of(measure, REFERENCE, sigma))

    def change(variant: Variant, sigma: float) -> str:
        return in_points(gain(variant, sigma) - gain(REFERENCE, sigma))

    sigmas = clean.sigmas
    gained = of_each(shared, lambda *at: in_points(gain(*at)))
    yield from table("gain by the tuned classifier", sigmas, gained)
    yield from table("change of the lead over Carlini et al.", sigmas, of_each(others, change))
    with_votes = {name: partial(lead, run, VOTED, run, ONE_STEP) for name, run in runs.items()}
    yield from table(f"{title(*VOTED)}: lead over {title(*ONE_STEP)}", sigmas, with_votes)
    yardstick = of_each(shared, partial(lead, clean, YARDSTICK, tuned))
    yield from table(f"{title(*YARDSTICK)}: lead over, with the tuned classifier,", sigmas, yardstick)
    for name, run in runs.items():
        yield from table(f"lead in average radius, {name}", sigmas, of_each(others, partial(farther, run)))
    for measure, told in (("certified", "certified at r = 0"), ("clean", "clean accuracy")):
        for name, run in runs.items():
            yield from table(f"{told}, {name}", sigmas, of_each(others, partial(accuracy, run, measure)))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clean", type=Path, help="merged counts with the one classifier")
    parser.add_argument("tuned", type=Path, help="merged counts with the other")
    arguments = parser.parse_args()
    print("\n".join(lines(*(Run(pd.read_parquet(path)) for path in (arguments.clean, arguments.tuned)))))


if __name__ == "__main__":
    main()
