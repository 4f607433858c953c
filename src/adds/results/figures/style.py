"""One look for all figures: legible in print, and to the colour-blind (Okabe and Ito's palette plus dashes)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.registry import METHODS

_INK = ".15"  # seaborn's dark grey

TEXT_WIDTH = 7.0
"""Width in inches of a two-column page."""


@dataclass(frozen=True)
class Line:
    """How a method is drawn."""

    colour: str
    dashes: tuple[float, ...]
    width: float
    hatch: str


def line(method: str, votes: int) -> Line:
    """Return the look of a variant: colour and dashes by method, weight and hatching by votes."""
    record = METHODS[method]
    return Line(
        colour=record.colour,
        dashes=record.dashes,
        width=1.4 if votes == 1 else 2.0,
        hatch="" if votes == 1 else "////",
    )


@contextmanager
def look(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply the style: ``font_size`` in points and ``dpi`` come from the configuration."""
    size = settings["font_size"]
    rc: dict[Any, Any] = {
        "font.size": size,
        "axes.titlesize": size,
        "axes.labelsize": size,
        "xtick.labelsize": size - 1,
        "ytick.labelsize": size - 1,
        "legend.fontsize": size - 1,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "text.color": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "patch.force_edgecolor": True,
        "patch.edgecolor": "white",
        "pdf.fonttype": 42,
        "savefig.dpi": settings["dpi"],
        "savefig.bbox": "tight",
        "figure.constrained_layout.use": True,
    }
    with mpl.rc_context(rc):
        yield


def save(figure: Figure, table: pd.DataFrame, stem: Path | str) -> None:
    """Write a figure as .pdf and .png, and what it draws as .csv."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    # Without these the files would differ from run to run.
    figure.savefig(f"{stem}.pdf", metadata={"CreationDate": None})
    figure.savefig(f"{stem}.png", metadata={"Software": None})
    plt.close(figure)
    table.to_csv(f"{stem}.csv", index=False)
