"""One look for all figures: legible in print, and to the colour-blind (Okabe and Ito's palette plus dashes)."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from adds.registry import METHODS
from adds.results.page import page

_INK = ".15"  # seaborn's dark grey

TEXT_WIDTH = 7.0
"""Width in inches of a two-column page."""

RED = "#c00000"
"""What is to be seen first: the true class, a wrong prediction."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vP"
"""What tells sigmas apart, in figures that show them side by side."""


@dataclass(frozen=True)
class Line:
    """How a method is drawn."""

    colour: str
    dashes: tuple[float, ...]
    marker: str
    width: float


def line(method: str, votes: int) -> Line:
    """Return the look of a variant: colour, dashes and marker by method, weight by votes."""
    record = METHODS[method]
    return Line(record.colour, record.dashes, record.marker, width=1.4 if votes == 1 else 1.9)


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
        "legend.handlelength": 3.2,
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


def shorten(text: str, letters: int) -> str:
    """Return a name that fits, with an ellipsis where something was cut."""
    return text if len(text) <= letters else text[: letters - 1].rstrip(" ,") + "…"


def save(figure: Figure, table: pd.DataFrame, stem: Path | str, caption: str) -> None:
    """Write a figure as .pdf and .png, what it draws as .csv, and the picture above its caption as .html."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    # Without these the files would differ from run to run.
    figure.savefig(f"{stem}.pdf", metadata={"CreationDate": None})
    figure.savefig(f"{stem}.png", metadata={"Software": None})
    plt.close(figure)
    table.to_csv(f"{stem}.csv", index=False)
    picture = base64.b64encode(Path(f"{stem}.png").read_bytes()).decode()
    image = f'<img alt="{escape(stem.name)}" src="data:image/png;base64,{picture}">'
    body = f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
    Path(f"{stem}.html").write_text(page(stem.name, body))
