"""Consensus (ours): the weighted mean of the probabilities that several readers of one y give the classes."""

from dataclasses import replace

import torch
from torch import Tensor

from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, method
from adds.methods.release import Release
from adds.models.pipeline import Pipeline


def _asked(query: Query) -> Query:
    """Return what a reader is asked: so many votes as there are to be bridges, where it has any."""
    return replace(query, votes=int(query.option("consensus", "bridges")))


def posterior(pipeline: Pipeline, query: Query, release: Release) -> Tensor:
    """Return sum_r w_r p_r(c | y) / sum_r w_r over the readers: [n, classes]."""
    weights = torch.tensor(list(query.readers.values()))
    parts = [method(name).posterior(pipeline, _asked(query), release) for name in query.readers]
    mean: Tensor = torch.tensordot(weights.to(parts[0]) / weights.sum(), torch.stack(parts), dims=1)
    return mean


def vote(pipeline: Pipeline, query: Query, release: Release) -> Ballots:
    """Take the class with the largest mean."""
    return Ballots(posterior(pipeline, query, release).argmax(dim=1)[:, None])


def work(schedule: Schedule, grid: Grid, query: Query) -> Work:
    """Every reader's work."""
    parts = [method(name).work(schedule, grid, _asked(query)) for name in query.readers]
    return Work(sum(part.diffusion for part in parts), sum(part.classifier for part in parts))
