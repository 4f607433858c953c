"""From the ballots of a sample to its prediction; needs no torch."""

import numpy as np

from adds.registry import METHODS, Variant
from adds.sampling.ledger import Chunk, Classes


def majority(ballots: Classes) -> Classes:
    """Return the class with most of the K votes of each sample ([n, K] to [n]).

    A tie goes to the class that was voted for first: any fixed rule is sound, this is ours.
    """
    support = (ballots[:, :, None] == ballots[:, None, :]).sum(axis=2)
    first_winner = support.argmax(axis=1)
    winners: Classes = ballots[np.arange(len(ballots)), first_winner]
    return winners


def predictions_of(variant: Variant, chunk: Chunk) -> tuple[Classes, float] | None:
    """Return what a variant predicts for a chunk's samples, and which part of the votes' cost is its own.

    The chunk may be another member's of the family: one with more votes, or the method that contains this one.
    None where the chunk doesn't hold the variant's predictions.
    """
    cast = chunk.ballots.shape[1]
    if chunk.method == variant.method and cast >= variant.votes:
        return majority(chunk.ballots[:, : variant.votes]), variant.votes / cast
    if chunk.method == METHODS[variant.method].contained_in and variant.method in chunk.contained:
        return chunk.contained[variant.method], 0.0
    return None
