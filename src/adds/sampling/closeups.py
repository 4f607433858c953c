"""A few samples, looked at closely: denoised images, how sharp and true they are, a whole trajectory, the budget."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser, Prediction
from adds.diffusion.noise import Noise
from adds.diffusion.schedule import Grid, from_model, to_model
from adds.machine.logs import progress_bar
from adds.methods.adds import GuidedStep, continuations, guide
from adds.methods.base import Query, purify
from adds.methods.privacy import squared_budget
from adds.methods.release import Subject, release
from adds.models.pipeline import Pipeline
from adds.registry import title


def _noise(pipeline: Pipeline, picture: Picture, sigma: float, seed: int) -> Noise:
    """Return the noise that certification's selection samples of this image have."""
    device = pipeline.denoiser.device
    return Noise(seed=seed, stage="selection", image=picture.number, sigma=sigma, device=device)


Methods = Mapping[str, Mapping[str, str]]
"""Methods that run, with their options."""


def _shown(
    pipeline: Pipeline, methods: Methods, subject: Subject, sigma: float, guidance_scale: float | None
) -> Iterator[tuple[str, Tensor]]:
    """Yield for each method that makes images what it shows the classifier, in [-1, 1]: one a sample, one vote."""
    for name, options in methods.items():
        query = Query(sigma, guidance_scale=guidance_scale or 0.0, options=options)
        purified = purify(name, pipeline, query, subject)
        if purified is not None:
            yield name, purified.images[purified.owner.argsort()].cpu()


def denoised_pictures(
    pipeline: Pipeline,
    images: Iterable[Picture],
    methods: Methods,
    *,
    sigma: float,
    guidance_scale: float | None,
    seed: int,
    classes: Mapping[int, str],
) -> tuple[NDArray[np.float32], pd.DataFrame]:
    """Return pictures [images, columns, C, H, W] in [0, 1] and a row for each: original, noised, each method.

    ``methods`` are those that run, with their options; shown are those that give the classifier an image of their
    own. Every picture shows selection sample 0 of its image, so the methods are seen on the same noise.
    """
    schedule, sample = pipeline.denoiser.schedule, torch.zeros(1, dtype=torch.long)
    pictures, rows = [], []
    for row, picture in enumerate(images):
        image = torch.as_tensor(picture.pixels)
        subject = Subject(image, sample, _noise(pipeline, picture, sigma, seed))
        columns = [
            ("original", to_model(image[None])),
            ("noised (RS)", release(schedule, subject, sigma).y.cpu()),
        ]
        shown_by = _shown(pipeline, methods, subject, sigma, guidance_scale)
        columns += [(title(name, 1), shown) for name, shown in shown_by]
        for column, (name, shown) in enumerate(columns):
            predicted = int(pipeline.classifier.predict(shown.to(pipeline.denoiser.device))[0])
            rows.append(
                {
                    "row": row,
                    "column": column,
                    "number": picture.number,
                    "name": name,
                    "caption": classes.get(predicted, str(predicted)) if column else picture.class_name,
                    "right": "no" if column and picture.label not in (None, predicted) else "yes",
                }
            )
        pictures.append(torch.cat([from_model(shown) for _, shown in columns]).numpy())
    return np.stack(pictures), pd.DataFrame(rows)


def detail_of(
    pipeline: Pipeline,
    images: Iterable[Picture],
    methods: Methods,
    *,
    sigma: float,
    guidance_scale: float | None,
    seed: int,
    samples: int,
) -> pd.DataFrame:
    """Return per method and image how sharp denoised images are and how far from the original: KEY and two columns.

    Means over the first selection samples, with one vote. Sharpness is the root mean square difference of neighbouring
    pixels, distance the l2 norm of the difference to the image, both in [0, 1] pixel units.
    """
    numbers, rows = torch.arange(samples), []
    queue = iter(progress_bar(images, desc=f"sigma {sigma:g}", unit="image"))
    while pictures := list(islice(queue, max(1, pipeline.denoiser.batches.size // samples))):  # whole batches
        originals = [torch.as_tensor(picture.pixels) for picture in pictures]
        subject = Subject.together(
            [
                Subject(image, numbers, _noise(pipeline, picture, sigma, seed))
                for image, picture in zip(originals, pictures, strict=True)
            ]
        )
        for name, shown_by_all in _shown(pipeline, methods, subject, sigma, guidance_scale):
            parts = from_model(shown_by_all.double()).split(samples)
            for picture, image, shown in zip(pictures, originals, parts, strict=True):
                rows.append(
                    {
                        "method": name,
                        "sigma": sigma,
                        "votes": 1,
                        "number": picture.number,
                        "sharpness": float(sharpness(shown).mean()),
                        "distance": float((shown - image).flatten(1).norm(dim=1).mean()),
                    }
                )
    return pd.DataFrame(rows)


def sharpness(images: Tensor) -> Tensor:
    """Return the root mean square difference of neighbouring pixels of each image ([n, C, H, W] to [n])."""
    steps = [images.diff(dim=dim).square().flatten(1) for dim in (2, 3)]
    return torch.cat(steps, dim=1).mean(dim=1).sqrt()


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
    budget = squared_budget(sigma)
    spent: dict[int, Tensor] = {}
    rows = []

    def observe(step: GuidedStep) -> None:
        for sample, costs in zip(step.samples.tolist(), step.spent, strict=True):
            spent[sample] = costs / budget
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

    noise = _noise(pipeline, picture, sigma, seed)
    subject = Subject(torch.as_tensor(picture.pixels), torch.arange(trajectories), noise)
    guide(pipeline, Query(sigma, guidance_scale=guidance_scale), subject, observe)
    return pd.DataFrame(rows)


class _Watched(Denoiser):
    """A denoiser that remembers, by steps, the states that it was shown and the x0 that it predicted."""

    def __init__(self, plain: Denoiser) -> None:
        super().__init__(
            plain.network,
            plain.schedule,
            batch_size=plain.batches.size,
            device=plain.device,
            rescale_timesteps=plain.rescale_timesteps,
        )
        self.seen: dict[int, tuple[Tensor, Tensor]] = {}

    def predict(self, x_t: Tensor, grid: Grid, step: int) -> Prediction:
        prediction = super().predict(x_t, grid, step)
        self.seen[step] = x_t, prediction.x0
        return prediction


def trajectory(
    pipeline: Pipeline, picture: Picture, *, sigma: float, guidance_scale: float, seed: int
) -> tuple[NDArray[np.float32], pd.DataFrame]:
    """Return one trajectory of ADDS with one vote: pictures [steps, 3, C, H, W] in [0, 1], and a row for every step.

    The pictures of a step are its state x_t, the predicted x0, and the x0 that guiding made of it, NaN where the budget
    was spent before. A row has the timestep, whether it was guided, and the mean share of the budget spent after it.
    The last predicted x0 is what the classifier sees; it is selection sample 0 of the image.
    """
    denoiser = _Watched(pipeline.denoiser)
    query = Query(sigma, guidance_scale=guidance_scale)
    subject = Subject(
        torch.as_tensor(picture.pixels), torch.zeros(1, dtype=torch.long), _noise(pipeline, picture, sigma, seed)
    )
    guided: dict[int, GuidedStep] = {}
    watched = replace(pipeline, denoiser=denoiser)
    ended = guide(watched, query, subject, lambda step: guided.update({step.step: step}))
    continuations(watched, subject, ended).run(query.all_votes)
    image, spent = to_model(subject.image), 0.0
    pictures, rows = [], []
    for step in sorted(denoiser.seen, reverse=True):
        x_t, x0 = (tensor[0].cpu() for tensor in denoiser.seen[step])
        pulled = torch.full_like(x0, torch.nan)
        if step in guided:
            pulled = x0 + guided[step].scale[0].cpu() * (image - x0)
            spent = float(guided[step].spent[0].mean()) / squared_budget(sigma)
        rows.append({"timestep": pipeline.grid.timesteps[step], "guided": step in guided, "spent_percent": 100 * spent})
        pictures.append(from_model(torch.stack([x_t, x0, pulled])).numpy())
    return np.stack(pictures).astype(np.float32), pd.DataFrame(rows)
