"""Readers that classify the noisy image itself, by a network that was made for noise of this size."""

from dataclasses import dataclass

from torch import Tensor

from adds.diffusion.schedule import Grid, Schedule
from adds.methods.base import Ballots, Query, Work, classify
from adds.methods.release import Release
from adds.models.pipeline import Pipeline
from adds.registry import Network


@dataclass(frozen=True)
class DirectReader:
    """Gives y to one of the pipeline's readers."""

    network: Network

    def vote(self, pipeline: Pipeline, _query: Query, release: Release) -> Ballots:
        """Classify the noisy image."""
        return classify(pipeline.reader(self.network), release.y)

    def posterior(self, pipeline: Pipeline, _query: Query, release: Release) -> Tensor:
        """Return the probabilities of the classes: [n, classes]."""
        return pipeline.reader(self.network).probabilities(release.y)

    def work(self, _schedule: Schedule, _grid: Grid, _query: Query) -> Work:
        """One classification."""
        return Work(0, 1)
