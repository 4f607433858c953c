"""Carlini et al.'s denoised image, shown to a classifier that was trained on such images."""

from torch import Tensor

from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, classify
from adds.methods.carlini import denoise
from adds.methods.release import Release
from adds.models.pipeline import Pipeline


def _images(pipeline: Pipeline, query: Query, release: Release) -> Tensor:
    """Denoise in one shot, as Carlini et al. do."""
    return denoise(pipeline.denoiser, release.y, query.sigma)


def vote(pipeline: Pipeline, query: Query, release: Release) -> Ballots:
    """Classify the denoised image."""
    return classify(pipeline.reader("denoised"), _images(pipeline, query, release))


def posterior(pipeline: Pipeline, query: Query, release: Release) -> Tensor:
    """Return the classifier's probabilities: [n, classes]."""
    return pipeline.reader("denoised").probabilities(_images(pipeline, query, release))


def work(_schedule: Schedule, _grid: Grid, _query: Query) -> Work:
    """One evaluation, one classification."""
    return Work(1, 1)
