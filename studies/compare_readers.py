"""Whose certified radii are largest: the paper's methods, yardsticks and ours, paired over the same images.

Run ``python -m studies.compare_readers`` where the experiments of ``config/readers.yaml`` and
``config/readers_denoised.yaml`` have been run; ``--results`` names other folders of results. It prints a Markdown table
for every sigma, by the paper's bound or by ``--bound pair``:

- radius: the average certified radius, where an image that is wrong or abstained counts 0;
- to Carlini: its difference to Carlini et al.'s, paired over images, with Student's 95% interval;
- least to the paper's: of the differences to each of the paper's methods, the one with the lowest interval. Where that
  is above 0, the method is ahead of all of them, each at 5%;
- certified: percent certified at r = 0; p: mean share of the true class in percent; evaluations of the diffusion model
  per sample.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from adds.registry import METHODS, Variant, in_order, title
from adds.results.accuracy import mean_interval
from adds.results.series import rows_of

RESULTS = ("results/readers", "results/readers_denoised")
CARLINI = ("carlini", 1, "")

Row = tuple[str, int, str]
"""A method, its votes, and what sets its experiment apart from the first."""


def read(folders: Sequence[Path], bound: str) -> pd.DataFrame:
    """Put experiments together; what a later one calls by a name of the first is marked."""
    parts = [rows_of(folder, bound).assign(mark="") for folder in folders[:1]]
    parts += [rows_of(folder, bound).assign(mark=f", {folder.name.partition('_')[2]}") for folder in folders[1:]]
    return pd.concat(parts, ignore_index=True)


def named(row: Row) -> str:
    """Return a row's name."""
    method, votes, mark = row
    return title(method, votes).replace(" (ours)", f"{mark} (ours)") if mark else title(method, votes)


def signed(difference: tuple[float, float, float]) -> str:
    """Write a difference with its interval."""
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*difference)


def lines(table: pd.DataFrame, sigma: float) -> Iterator[str]:
    """Yield the comparison at one sigma."""
    chosen = table[table["sigma"] == sigma]
    radii = chosen.pivot(index="number", columns=["method", "votes", "mark"], values="radius")
    means = chosen.groupby(["method", "votes", "mark"])[["certified_percent", "p_true_percent", "evaluations"]].mean()
    paper = [row for row in radii.columns if METHODS[row[0]].origin == "paper"]
    yield f"| sigma {sigma:g} | radius | to Carlini | least to the paper's | certified | p | evaluations |"
    yield "|---|---|---|---|---|---|---|"
    order = in_order((method, votes) for method, votes, _ in radii.columns)
    for row in sorted(radii.columns, key=lambda row: (order.index(Variant(*row[:2])), row[2])):
        differences = {other: mean_interval((radii[row] - radii[other]).to_numpy()) for other in paper if other != row}
        to_carlini = signed(differences[CARLINI]) if CARLINI in differences else ""
        least = signed(min(differences.values(), key=lambda found: found[1]))
        found = means.loc[row]
        yield (
            f"| {named(row)} | {radii[row].mean():.3f} | {to_carlini} | {least} | {found['certified_percent']:.1f} "
            f"| {found['p_true_percent']:.1f} | {found['evaluations']:.1f} |"
        )


def main() -> None:
    """Print a table for every sigma."""
    parser = argparse.ArgumentParser(prog="python -m studies.compare_readers", description=main.__doc__)
    parser.add_argument("--results", nargs="+", type=Path, default=[Path(folder) for folder in RESULTS])
    parser.add_argument("--bound", choices=("cohen", "pair"), default="cohen")
    arguments = parser.parse_args()
    table = read(arguments.results, arguments.bound)
    print(f"{table['number'].nunique()} images, bound {arguments.bound}\n")
    for sigma in sorted(table["sigma"].unique()):
        print("\n".join(lines(table, sigma)), end="\n\n")


if __name__ == "__main__":
    main()
