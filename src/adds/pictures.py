"""What the figures of denoised images and of the privacy budget show: a few samples, looked at closely."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from adds.images import load_image
from adds.methods import METHODS
from adds.methods.adds import GuidedStep, guide
from adds.methods.base import Pipeline, Query
from adds.methods.rs import noised
from adds.naming import Setting, label
from adds.noise import Noise


@dataclass(frozen=True)
class Picture:
    """An image with what is known of it."""

    image: Tensor
    index: int
    label: int
    class_name: str


def load_pictures(images: pd.DataFrame, *, size: int) -> list[Picture]:
    """Load the images of some rows of images.csv."""
    return [
        Picture(
            torch.from_numpy(load_image(row.file, size=size)), int(row.index), int(row.label), str(row.class_name)
        )
        for row in images.itertuples(index=False)
    ]


def _noise(pipeline: Pipeline, picture: Picture, sigma: float, seed: int) -> Noise:
    """Return the noise that certification's selection samples of this image have."""
    device = pipeline.denoiser.device
    return Noise(seed=seed, stage="selection", image=picture.index, sigma=sigma, device=device)


def denoised_pictures(
    pipeline: Pipeline,
    images: list[Picture],
    settings: list[Setting],
    *,
    sigma: float,
    guidance_scale: float | None,
    start: Literal["grid", "exact"],
    seed: int,
    classes: dict[int, str],
) -> tuple[NDArray[np.float32], pd.DataFrame]:
    """Return pictures [images, columns, C, H, W] in [0, 1] and a row for each: original, noised, each method.

    Every picture shows selection sample 0 of its image, so the methods are seen on the same noise.
    """
    settings = [setting for setting in settings if setting[0] != "rs"]  # what RS sees is the noised input
    sample = torch.zeros(1, dtype=torch.long)
    pictures, rows = [], []
    for row, picture in enumerate(images):
        noise = _noise(pipeline, picture, sigma, seed)
        query = Query(picture.image, sigma, guidance_scale=guidance_scale or 0.0, start=start)
        columns = [
            ("original", picture.image[None] * 2 - 1),
            ("noised", noised(pipeline, query, sample, noise).cpu()),
        ]
        for method, votes in settings:
            columns.append((label(method, votes), METHODS[method](pipeline, query, sample, noise).images.cpu()))
        for column, (name, shown) in enumerate(columns):
            predicted = int(pipeline.classifier.predict(shown.to(pipeline.denoiser.device))[0])
            rows.append(
                {
                    "row": row,
                    "column": column,
                    "index": picture.index,
                    "name": name,
                    "caption": classes[predicted] if column else picture.class_name,
                    "right": "yes" if column == 0 or predicted == picture.label else "no",
                }
            )
        pictures.append(torch.cat([(shown + 1) / 2 for _, shown in columns]).numpy())
    return np.stack(pictures), pd.DataFrame(rows)


def budget_by_step(
    pipeline: Pipeline,
    picture: Picture,
    *,
    sigma: float,
    guidance_scale: float,
    seed: int,
    trajectories: int,
) -> pd.DataFrame:
    """Return per timestep the share of mu^2 spent so far and the scale used, over coordinates and trajectories."""
    squared_budget = 1 / (2 * sigma) ** 2
    spent: dict[int, Tensor] = {}
    rows = []

    def observe(step: GuidedStep) -> None:
        for sample, own in zip(step.samples.tolist(), step.spent, strict=True):
            spent[sample] = own / squared_budget
        shares = torch.stack(list(spent.values()))
        rows.append(
            {
                "sigma": sigma,
                "timestep": pipeline.grid.timesteps[step.step],
                "guided": len(step.samples),
                "spent_mean": float(shares.mean()),
                "spent_min": float(shares.min()),
                "spent_max": float(shares.max()),
                "scale_mean": float(step.scale.mean()),
            }
        )

    query = Query(picture.image, sigma, guidance_scale=guidance_scale)
    noise = _noise(pipeline, picture, sigma, seed)
    guide(pipeline, query, torch.arange(trajectories), noise, observe)
    return pd.DataFrame(rows)
