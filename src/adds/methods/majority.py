"""Which class wins the votes of a sample, and from when on no vote that is left can change that; needs no torch."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Integer = TypeVar("Integer", bound=np.integer[Any])

UNCAST = 65535
"""Stands in the place of a ballot that wasn't cast, because it couldn't have changed its sample's prediction."""


def majority(ballots: NDArray[Integer]) -> NDArray[Integer]:
    """Return the class with most of the votes of each sample ([n, K] to [n]); those that weren't cast don't count.

    A tie goes to the class that was voted for first: any fixed rule is sound, this is ours.
    """
    winners: NDArray[Integer] = ballots[np.arange(len(ballots)), _support(ballots).argmax(axis=1)]
    return winners


def _support(ballots: NDArray[Integer]) -> NDArray[np.int64]:
    """Return how many votes each ballot's class has ([n, K]); no class has those that weren't cast."""
    support: NDArray[np.int64] = (ballots[:, :, None] == ballots[:, None, :]).sum(axis=2)
    return np.where(ballots == UNCAST, 0, support)


def always_cast(votes: int) -> int:
    """Return how many of K votes every sample casts: ceil(K / 2).

    After fewer, even those who agree are fewer than the votes that are left, and another class may get all of these.
    """
    return -(-votes // 2)


def undecided(ballots: NDArray[Integer], votes: int) -> NDArray[np.bool_]:
    """Tell for each sample ([n, m] to [n]) whether the rest of its K votes can change what its first m predict.

    They can't if no class would win with all of them: one that has votes needs more than the leader then, or as many
    and an earlier first vote; one that has none needs more, because it would lose a tie.
    """
    left = votes - ballots.shape[1]
    support = _support(ballots)
    first = (ballots[:, :, None] == ballots[:, None, :]).argmax(axis=2)
    leader = support.argmax(axis=1)[:, None]  # the leader's first ballot
    to_beat = np.take_along_axis(support, leader, axis=1)
    ahead = (support + left > to_beat) | ((support + left == to_beat) & (first < leader))
    others = ballots != np.take_along_axis(ballots, leader, axis=1)
    open_to_others: NDArray[np.bool_] = (ahead & others).any(axis=1) | (left > to_beat[:, 0])
    return open_to_others


def ballots_needed(ballots: NDArray[Integer], votes: int) -> NDArray[np.int64]:
    """Return how many ballots of each sample are cast where k votes are asked for, of its ballots for K >= k votes.

    They are all on record: what is decided for K votes after m ballots is decided for k as well, if k >= m. For fewer
    votes are left then, so that no class can get further than it could before. The same makes the first k ballots
    predict what they predict for k votes: either all were cast, or those that were had decided.
    """
    needed = np.full(len(ballots), always_cast(votes))
    for cast in range(always_cast(votes), votes):
        needed += undecided(ballots[:, :cast], votes)
    return needed
