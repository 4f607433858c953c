"""From a chunk's ballots to what a member of the family predicts, and what that costs; needs no torch."""

from adds.methods.majority import ballots_needed, majority
from adds.registry import METHODS, Variant
from adds.sampling.ledger import Chunk, Classes


def predictions_of(variant: Variant, chunk: Chunk) -> tuple[Classes, float] | None:
    """Return what a variant predicts for a chunk's samples, and which part of the votes' cost is its own.

    The chunk may be another member's of the family: one with more votes, or the method that contains this one. Then
    the part is that of the ballots which the variant alone would have cast, as if each cost the same.
    None where the chunk doesn't hold the variant's predictions.
    """
    votes = chunk.ballots.shape[1]
    if chunk.method == variant.method and votes == variant.votes:
        return majority(chunk.ballots), 1.0
    if chunk.method == variant.method and votes > variant.votes:
        own, cast = (int(ballots_needed(chunk.ballots, number).sum()) for number in (variant.votes, votes))
        return majority(chunk.ballots[:, : variant.votes]), own / cast
    if chunk.method == METHODS[variant.method].contained_in and variant.method in chunk.contained:
        return chunk.contained[variant.method], 0.0
    return None
