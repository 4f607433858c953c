"""What an image's first estimation samples tell, as many of every image; needs no torch.

Sequential sampling stops by looking at the counts, so that shares of all samples are biased: an image that happened to
start well is stopped early. The samples up to the first look at which it may stop are drawn in any case.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adds.methods.majority import UNCAST
from adds.registry import Variant
from adds.sampling.ledger import PER_MILLE, Chunk, Classes


@dataclass
class FirstSamples:
    """Of samples 0 to ``limit`` - 1: class counts, how votes disagree, and where guidance ended."""

    limit: int
    counts: NDArray[np.int64]
    ballot_pairs: int = 0
    ballot_disagreements: int = 0
    guided: int = 0
    timesteps: int = 0
    spent: int = 0

    @classmethod
    def none_yet(cls, classes: int, limit: int) -> "FirstSamples":
        """Begin with no sample."""
        return cls(limit, np.zeros(classes, dtype=np.int64))

    def add(self, chunk: Chunk, variant: Variant, predictions: Classes, begin: int, end: int) -> None:
        """Look at those of the chunk's samples ``begin`` to ``end`` - 1 that are among the first."""
        end = min(end, self.limit - chunk.first_sample)
        if end <= begin:
            return
        self.counts += np.bincount(predictions[begin:end], minlength=len(self.counts))
        if chunk.method == variant.method and variant.votes > 1:
            one, two = chunk.ballots[begin:end, :2].T
            cast = two != UNCAST
            self.ballot_pairs += int(cast.sum())
            self.ballot_disagreements += int((one != two)[cast].sum())
        if len(chunk.stop_timestep):
            self.guided += end - begin
            self.timesteps += int(chunk.stop_timestep[begin:end].sum())
            self.spent += int(chunk.spent_before[begin:end].sum())

    def columns(self) -> dict[str, Any]:
        """Return them as columns of counts; the means are missing where no sample was guided."""
        return {
            "counts_first": self.counts.tolist(),
            "ballot_pairs": self.ballot_pairs,
            "ballot_disagreements": self.ballot_disagreements,
            "stop_timestep": self.timesteps / self.guided if self.guided else np.nan,
            "spent_before": self.spent / self.guided / PER_MILLE if self.guided else np.nan,
        }
