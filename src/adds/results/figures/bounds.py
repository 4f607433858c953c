"""Certified accuracy by the two bounds, from the same counts."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from adds.registry import BOUNDS, Variant, in_order, title
from adds.results.accuracy import accuracy_steps
from adds.results.figures.certified_accuracy import draw_steps, handle, panels
from adds.results.figures.style import Line, line

DASHES = {"cohen": (1.0, 0.8), "pair": ()}


def shown(both: pd.DataFrame) -> list[Variant]:
    """Return the variants that are drawn, two at most: Carlini's method and ADDS with most votes, or the first one."""
    variants = in_order(zip(both["method"], both["votes"], strict=True))
    compared = [variant for variant in variants if variant.method in ("carlini", "adds")]
    return sorted({compared[0], compared[-1]}, key=variants.index) if compared else variants[:1]


def curves(both: pd.DataFrame) -> pd.DataFrame:
    """Return the curves of `shown` by either bound: the columns of `accuracy_steps`, and bound."""
    variants, both = shown(both), both[both["bound"].isin(list(DASHES))]
    chosen = both[[pair in variants for pair in zip(both["method"], both["votes"], strict=True)]]
    parts = [accuracy_steps(part).assign(bound=bound) for bound, part in chosen.groupby("bound")]
    return pd.concat(parts, ignore_index=True)


def _look(method: str, votes: int, bound: str) -> Line:
    return Line(line(method, votes).colour, DASHES[bound], line(method, votes).marker, width=1.6)


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per sigma: dotted by the paper's bound, solid by ours."""
    sigmas = sorted(table["sigma"].unique())
    drawn = [
        (*variant, bound) for variant in in_order(zip(table["method"], table["votes"], strict=True)) for bound in DASHES
    ]
    figure, axes = panels(sigmas, float(table["radius"].max()))
    for axis, sigma in zip(axes, sigmas, strict=True):
        curves_here = table[table["sigma"] == sigma].groupby(["method", "votes", "bound"])
        for (method, votes, bound), curve in curves_here:
            draw_steps(axis, curve, _look(method, votes, bound), np.array([]))
    handles = [handle(_look(*key), f"{title(*key[:2])}, {BOUNDS[key[2]].title} ({key[2]})") for key in drawn]
    for shape in handles:
        shape.set_marker("")
    figure.legend(handles=handles, loc="outside lower center", ncols=2 if len(sigmas) > 1 else 1)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say what is drawn."""
    return (
        f"Certified accuracy of {int(table['images'].max())} images against radius by the two bounds, from the same "
        "counts: dotted the paper's (cohen: every other class may have all that the prediction leaves), solid ours "
        "(pair: the prediction against the runner-up). The gain is largest where no class has a clear majority; where "
        "the runner-up takes all that the prediction leaves, the two agree to within a thousandth of sigma. Each holds "
        "with probability 1 - alpha: choose one before looking, not the better of the two for each image."
    )
