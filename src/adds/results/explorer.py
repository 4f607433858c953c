"""The explorer: one page on which a run's images are sorted, filtered and opened. It needs no network, and no torch."""

import base64
import io
import json
import math
from collections.abc import Hashable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from adds.data.images import Images
from adds.registry import BOUNDS, METHODS, Variant, in_order, title
from adds.results.page import STYLE
from adds.sampling.job import SETTING

TEMPLATE = Path(__file__).with_name("explorer.html")
TOP = 5
"""So many classes of an image's counts are shown, beside the true and the predicted one."""
THUMBNAIL, CLOSEUP = 96, 192
"""Pictures have at most so many pixels on a side: those of the images, and those of what methods made of them."""

Closeups = Mapping[float, Mapping[str, NDArray[Any]]]
"""By sigma, what the rule `denoise` left: pictures [images, columns, C, H, W] in [0, 1], and what each of them is."""


class Distinct(dict[Hashable, int]):
    """Values by the order of their first appearance, so that each is written once and meant by its place."""

    def __missing__(self, value: Hashable) -> int:
        self[value] = place = len(self)
        return place


def explored(
    certified: pd.DataFrame, counts: pd.DataFrame, images: pd.DataFrame, names: Mapping[int, str]
) -> dict[str, Any]:
    """Return what the page knows of the run, as small as it can be: values are lists in the images' order.

    ``settings`` has an entry per sigma and variant, None where the variant was not run at that sigma. Of its values
    those are None whose image has no counts, and radii where the method abstains.
    """
    numbers, classes, stops = [int(number) for number in images["number"]], Distinct(), Distinct()
    labels = [None if pd.isna(label) else classes[int(label)] for label in images["label"]]
    variants = in_order(zip(certified["method"], certified["votes"], strict=True))
    sigmas = sorted(certified["sigma"].unique())
    bounds = [name for name in BOUNDS if name in set(certified["bound"])]
    counted, verdicts = dict(iter(counts.groupby(SETTING))), dict(iter(certified.groupby([*SETTING, "bound"])))

    def setting(sigma: float, variant: Variant) -> dict[str, Any] | None:
        key = (variant.method, sigma, variant.votes)
        if key not in counted:
            return None
        rows = {row.number: row for row in counted[key].itertuples()}
        found = {bound: {row.number: row for row in verdicts[*key, bound].itertuples()} for bound in bounds}
        known = [(rows.get(number), found[bounds[0]].get(number)) for number in numbers]
        return {
            "prediction": [verdict and classes[int(verdict.prediction)] for _, verdict in known],
            "radius": {bound: [_radius(found[bound].get(number)) for number in numbers] for bound in bounds},
            "samples": [row and [int(row.n0), int(row.n)] for row, _ in known],
            "stopped": [row and stops[row.stopped] for row, _ in known],
            "counts": [row and verdict and _leading(row, int(verdict.prediction), classes) for row, verdict in known],
        }

    settings = [[setting(sigma, variant) for variant in variants] for sigma in sigmas]
    return {
        "sigmas": [f"{sigma:g}" for sigma in sigmas],
        "bounds": [[name, BOUNDS[name].title] for name in bounds],
        "alpha": float(certified["alpha"].iloc[0]),
        "variants": [_variant(variant) for variant in variants],
        "images": {"number": numbers, "label": labels},
        "settings": settings,
        "stops": list(stops),
        "labels": list(classes),
        "names": [names.get(int(str(label)), str(label)) for label in classes],
    }


def _variant(variant: Variant) -> dict[str, str]:
    return {
        "key": f"{variant.method}-{variant.votes}",
        "method": variant.method,
        "title": title(*variant),
        "colour": METHODS[variant.method].colour,
    }


def _radius(verdict: Any) -> float | None:
    """Return a radius to four digits, never above what is certified, or None where there is none."""
    return None if verdict is None or verdict.abstained else math.floor(verdict.radius * 1e4) / 1e4


def _leading(row: Any, prediction: int, classes: Distinct) -> list[int]:
    """Return the classes that most of an image's estimation samples fell on, each followed by how many did."""
    counts = np.asarray(row.counts_estimation)
    shown = [int(label) for label in np.argsort(-counts, kind="stable")[:TOP]]
    known = [prediction] if pd.isna(row.label) else [prediction, int(row.label)]
    shown += sorted({label for label in known if label not in shown}, key=lambda label: -counts[label])
    return [number for label in shown if counts[label] for number in (classes[label], int(counts[label]))]


def png(pixels: NDArray[Any], side: int) -> str:
    """Return an image [C, H, W] in [0, 1] as the address of a PNG that stands in the page itself."""
    levels = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    image = Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def pictures_of(images: Images, closeups: Closeups) -> dict[str, Any]:
    """Return the pictures of the page: every image, and by an image's number and sigma what methods made of it."""
    known = set(images.table["number"])  # the figures may show images of the list that this run doesn't certify
    shown: dict[int, dict[str, list[dict[str, str]]]] = {}
    for sigma, stored in closeups.items():
        flat = stored["pictures"].reshape(-1, *stored["pictures"].shape[2:])
        for picture, column, number, name, caption, right in zip(
            flat, *(stored[key] for key in ("column", "number", "name", "caption", "right")), strict=True
        ):
            if int(number) in known and int(column) > 0:  # the first is the image itself
                entry = {"name": str(name), "caption": str(caption), "right": str(right), "png": png(picture, CLOSEUP)}
                shown.setdefault(int(number), {}).setdefault(f"{sigma:g}", []).append(entry)
    thumbnails = [png(picture.pixels, THUMBNAIL) for picture in images]
    return {"images": thumbnails, "small": images.stored.shape[-1] < THUMBNAIL, "closeups": shown}


def explorer_page(experiment: str, bound: str, run: Mapping[str, Any], pictures: Mapping[str, Any] | None) -> str:
    """Return the page; ``bound`` is the one that it begins with, ``pictures`` None where they must not be passed on."""
    data = {"experiment": experiment, "bound": bound, **run, "pictures": pictures}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":  # in JSON they stand in texts only; `</script>` would end the data
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    page = TEMPLATE.read_text(encoding="utf-8")
    for place, content in (("{{title}}", escape(experiment)), ("{{style}}", STYLE), ("{{data}}", text)):
        before, after = page.split(place)
        page = before + content + after
    return page
