"""The largest share of the budget that any sample spent is what counts of an image say, however it was drawn."""

import numpy as np
import pytest
import torch

from adds.data.images import Picture
from adds.methods.base import Ballots
from adds.registry import Variant
from adds.sampling import sampler
from adds.sampling.counting import Request, Tally
from adds.sampling.job import Counted
from adds.sampling.ledger import Chunk
from adds.sampling.sampler import Sampler

ADDS = Variant("adds", 1)
PICTURE = Picture.of(np.zeros((1, 8, 8), np.float32))


def chunk(first, classes, share=1.0):
    return Chunk("adds", 0, "", "estimation", first, np.array(classes, np.uint16)[:, None], budget_share=share)


def tally(*chunks, limit=100):
    found = Tally(np.zeros(2, dtype=np.int64))
    for one in chunks:
        found.add(one, ADDS, limit)
    return found


def test_the_largest_of_a_chunks_samples(gaussian_pipeline, monkeypatch):
    shares = torch.tensor([0.5, 0.9, 0.7, 0.2], dtype=torch.float64)
    monkeypatch.setattr(sampler, "vote", lambda *_: Ballots(torch.zeros(4, 1, dtype=torch.long), budget_share=shares))
    requests = [Request(PICTURE, "estimation", first, 2) for first in (0, 2)]
    drawn = Sampler("adds", gaussian_pipeline, sigma=0.5, guidance_scale=0.8).draw(requests)
    assert [one.budget_share for one in drawn] == [0.9, 0.7]


@pytest.mark.parametrize("shares", [(0.9, 0.5), (0.5, 0.9)])
def test_the_largest_of_an_images_chunks_and_of_both_stages(shares):
    assert tally(*(chunk(8 * place, [0] * 8, share) for place, share in enumerate(shares))).budget_share == 0.9
    selection, estimation = (tally(chunk(0, [0] * 8, share)) for share in shares)
    assert Counted(PICTURE, selection, estimation, "cap").columns()["budget_share"] == 0.9


def test_samples_after_a_gap_are_not_counted():
    """They would be taken for others, or counted twice."""
    found = tally(chunk(0, [0] * 8), chunk(16, [1] * 8))
    assert found.counts.tolist() == [8, 0]
    found.add(chunk(4, [1] * 8), ADDS, 100)
    assert found.counts.tolist() == [8, 4], "those that were counted already come once"
