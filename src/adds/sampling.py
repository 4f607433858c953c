"""Drawing samples of a method: from an image and sample numbers to the classes they predict."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from adds.ledger import Chunk, Classes
from adds.methods import METHODS
from adds.methods.base import Pipeline, Query, predict
from adds.naming import VOTING, Stage
from adds.noise import Noise
from adds.tally import Counter, Tally, checksum


@dataclass(frozen=True)
class Sampler:
    """One method at one sigma and number of votes: draws any range of samples of any image.

    ``keep_oneshot`` makes ADDS classify its one-shot denoised images too, for `adds_oneshot` to use.
    """

    method: str
    pipeline: Pipeline
    sigma: float
    votes: int = 1
    guidance_scale: float = 0.8
    start: Literal["grid", "exact"] = "grid"
    seed: int = 0
    chunk_size: int = 256
    keep_oneshot: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} doesn't exist: choose one of {', '.join(METHODS)}")
        if self.votes != 1 and self.method not in VOTING:
            raise ValueError(f"votes is {self.votes}: {self.method} has no votes to take, it must be 1")
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size is {self.chunk_size}: it must be at least 1")

    def draw(self, image: Any, *, index: int, stage: Stage, first: int, count: int) -> Chunk:
        """Predict samples ``first`` to ``first + count - 1`` of the image with this index in its data set.

        ``image`` is an array or tensor [C, H, W] in [0, 1].
        """
        query = Query(torch.as_tensor(image), self.sigma, self.votes, self.guidance_scale, self.start)
        device = self.pipeline.denoiser.device
        noise = Noise(seed=self.seed, stage=stage, image=index, sigma=self.sigma, device=device)
        samples = torch.arange(first, first + count, device=device)
        outcome = predict(
            METHODS[self.method],
            self.pipeline,
            query,
            samples,
            noise,
            classify_first=self.keep_oneshot,
        )
        return Chunk(
            method=self.method,
            image=index,
            stage=stage,
            first_sample=first,
            pixels=checksum(image),
            ballots=_classes(outcome.ballots),
            oneshot=np.empty(0, np.uint16) if outcome.first is None else _classes(outcome.first),
            shared_evaluations=outcome.shared.evaluations,
            vote_evaluations=outcome.votes.evaluations,
            shared_seconds=outcome.shared.seconds,
            vote_seconds=outcome.votes.seconds,
            budget_share=outcome.budget_share,
        )

    @property
    def counter(self) -> Counter:
        """What counts this sampler's samples."""
        return Counter(
            method=self.method,
            sigma=self.sigma,
            votes=self.votes,
            seed=self.seed,
            classes=self.pipeline.classifier.classes,
            chunk_size=self.chunk_size,
            draw=self.draw,
        )

    def count(self, image: Any, *, index: int, stage: Stage, limit: int, **sources: Any) -> Tally:
        """Count the classes of samples 0 to ``limit`` - 1, as `adds.tally.Counter.count` does."""
        return self.counter.count(image, index=index, stage=stage, limit=limit, **sources)


def _classes(found: Tensor) -> Classes:
    return found.cpu().numpy().astype(np.uint16)
