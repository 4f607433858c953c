"""Checksums of what the code gives in a world of closed form: ballots of every method, radii of every bound.

They stand in `adds.registry` and are part of a sample's identity (a bound's: of the certificates' parameters). So a
change of code that gives other ballots can't pass the tests under the old identity, and old samples are drawn again.

    python -m tests.soundness.golden    prints the lines for `adds.registry`
"""

import hashlib
import json

import numpy as np
import torch

from adds.certificates.bounds import bound_function
from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.methods.majority import majority
from adds.methods.privacy import MIN_STD, SLIVER
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.registry import BOUNDS, METHODS, READERS
from adds.sampling.counting import Request
from adds.sampling.sampler import Sampler
from tests.conftest import GaussianWorld

SIGMAS = (0.5, 1.0)
SAMPLES = 48
READ = {name: weight for weight, (name, method) in enumerate(METHODS.items(), start=1) if method.is_reader}
COUNTS = [[900, 60, 40], [430, 300, 270], [1000, 0, 0], [480, 500, 20], [60, *[5] * 188]]


def quadrant(images: torch.Tensor) -> torch.Tensor:
    """Four classes, by the first two coordinates: by their sizes too, which tell denoisers apart."""
    x, y = images.flatten(1)[:, :2].unbind(dim=1)
    return torch.stack([x + y - 0.3, x - y, y - x + 0.1, 0.2 - x - y], dim=1)


def world() -> Pipeline:
    """A denoiser whose variance differs by coordinate, a classifier of four classes, and other ones as readers."""
    schedule = Schedule.named("linear", 1000)
    tilted = torch.linspace(-0.6, 0.6, 4).view(1, 1, 2, 2)
    readers = {name: lambda x, shift=shift: quadrant(x + 0.2 * shift) for shift, name in enumerate(READERS, start=1)}
    return Pipeline(
        Denoiser(GaussianWorld(schedule, tau=1.2, variance=tilted), schedule, batch_size=16),
        BatchedClassifier(quadrant, classes=4, batch_size=16),
        schedule.respaced(evenly_spaced(20, 1000)),
        {name: BatchedClassifier(reader, classes=4, batch_size=16) for name, reader in readers.items()},
    )


def ballots_of(name: str) -> list[object]:
    """Everything that a method says of some samples, in both stages, with one vote and with five, for every option.

    The vote's rule is a part of it: of two to four votes, some are tied. So is what guided methods hold back of the
    budget and don't count as noise, which no ballot here would show.
    """
    method, pipeline = METHODS[name], world()
    picture = Picture.of(np.array([[[0.6, 0.45], [0.2, 0.9]]], np.float32), number=3)
    choices = [{key: value} for key, values in method.options.items() for value in values] or [{}]
    found: list[object] = []
    for sigma in SIGMAS:
        for votes in (1, 5) if method.takes_votes else (1,):
            for options in choices:
                sampler = Sampler(name, pipeline, sigma, votes, options=options, readers=READ)
                for stage in ("selection", "estimation"):
                    chunk = sampler.draw([Request(picture, stage, 2, SAMPLES)])[0]
                    contained = {key: classes.tolist() for key, classes in chunk.contained.items()}
                    found += [chunk.ballots.tolist(), contained, round(chunk.budget_share, 4)]
                    found += [majority(chunk.ballots[:, :cast]).tolist() for cast in (2, 3, 4, 5) if cast <= votes]
    return [*found, SLIVER, MIN_STD] if method.guided else found


def radii_of(name: str) -> list[object]:
    """A bound's radii for a table of counts, at two levels, fixed and sequential, rounded to what platforms share."""
    return [
        [verdict.abstained, round(verdict.radius, 4)]
        for counts in COUNTS
        for alpha in (0.05, 0.001)
        for mode in ("fixed", "sequential")
        for verdict in [bound_function(name)(counts, 0, sigma=0.5, alpha=alpha, mode=mode)]
    ]


def checksum(value: list[object]) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


if __name__ == "__main__":
    for name in METHODS:
        print(f'{name}: counts="{checksum(ballots_of(name))}",')
    for name in BOUNDS:
        print(f'{name}: radii="{checksum(radii_of(name))}"')
