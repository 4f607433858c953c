"""Votes that can't change the outcome aren't cast: the same predictions, at what their ballots cost."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import Noise
from adds.diffusion.reverse import Continuations
from adds.methods import adds, densepure
from adds.methods.adds import guide
from adds.methods.base import Query
from adds.methods.majority import UNCAST, always_cast, ballots_needed, majority, undecided
from adds.methods.release import Subject
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.registry import Variant
from adds.sampling.counting import Request, Tally
from adds.sampling.ledger import Chunk
from adds.sampling.sampler import Sampler
from adds.sampling.votes import predictions_of
from tests.conftest import random_classifier, unet_pipeline
from tests.soundness.test_step import Uneven

N = 96
SAMPLES = torch.arange(N)
SIGMA, SCALE = 0.6, 0.5


def winner(ballots):
    """The rule in the plainest words: most votes, and of those the one that was voted for first."""
    counts = Counter(ballots)
    return min(counts, key=lambda name: (-counts[name], ballots.index(name)))


def as_recorded(ballots, votes):
    """What a ledger keeps of ballots [n, votes]: those that are needed."""
    cast = np.arange(votes) < ballots_needed(ballots, votes)[:, None]
    return np.where(cast, ballots, UNCAST).astype(np.uint16)


def agree(ballots):
    """Check that what is recorded of ballots [n, K] predicts and costs what all would, for K votes and fewer."""
    for votes in range(1, ballots.shape[1] + 1):
        recorded = as_recorded(ballots[:, :votes], votes)
        for fewer in range(1, votes + 1):
            of_fewer = ballots[:, :fewer]
            assert majority(recorded[:, :fewer]).tolist() == [winner(row) for row in of_fewer.tolist()]
            assert ballots_needed(recorded, fewer).tolist() == ballots_needed(of_fewer, fewer).tolist()


@pytest.mark.parametrize("votes", range(1, 6))
def test_all_ballots_of_three_classes(votes):
    agree(np.array(list(product(range(3), repeat=votes)), np.uint16))


@given(st.integers(1, 9).flatmap(lambda votes: st.lists(st.integers(0, 3), min_size=votes, max_size=votes)))
def test_any_ballots(ballots):
    agree(np.array([ballots], np.uint16))


@pytest.mark.parametrize("votes", range(1, 6))
def test_undecided_is_what_some_rest_of_the_votes_would_change(votes):
    """By trying all of them: so nothing that could matter is left out, and nothing is cast in vain."""
    for cast in range(1, votes + 1):
        for ballots in product(range(3), repeat=cast):
            rests = product(range(3), repeat=votes - cast)
            changed = any(winner(ballots + rest) != winner(ballots) for rest in rests)
            assert undecided(np.array([ballots]), votes).tolist() == [changed], ballots


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(0, 8))
def test_undecided_is_what_one_class_with_the_rest_of_the_votes_would_change(ballots, left):
    changed = any(winner([*ballots, *[name] * left]) != winner(ballots) for name in range(5))
    assert undecided(np.array([ballots]), len(ballots) + left).tolist() == [changed]


@pytest.mark.parametrize("votes", range(1, 10))
def test_one_mind_decides_as_soon_as_anything_does(votes):
    agreed = np.zeros((1, votes), int)
    decided = [cast for cast in range(1, votes + 1) if not undecided(agreed[:, :cast], votes)]
    assert decided[0] == always_cast(votes) == ballots_needed(agreed, votes)


@pytest.fixture
def pipeline(schedule, unet):
    """Guidance ends at one of two steps, and votes differ."""
    like = unet_pipeline(schedule, unet)
    classifier = BatchedClassifier(random_classifier(), classes=10, batch_size=32)
    return Pipeline(Denoiser(Uneven(), schedule, batch_size=32), classifier, like.grid)


def chunk_of(pipeline, image, method, votes, sigma=SIGMA):
    sampler = Sampler(method, pipeline, sigma, votes, SCALE)
    return sampler.draw([Request(Picture.of(image, number=3), "estimation", 0, N)])[0]


@pytest.fixture(params=["adds", "densepure"])
def method(request):
    return request.param


@pytest.fixture
def drawn(pipeline, image, method):
    return chunk_of(pipeline, image, method, votes=5)


def cast_in(chunk):
    return (chunk.ballots != UNCAST).sum(axis=1)


def evaluations_of(chunk):
    return chunk.shared_evaluations + chunk.vote_evaluations


def test_predictions_are_those_of_all_votes(pipeline, image, method, drawn, monkeypatch):
    monkeypatch.setattr("adds.methods.base.undecided", lambda ballots, _votes: np.ones(len(ballots), bool))
    whole = chunk_of(pipeline, image, method, votes=5)
    assert (whole.ballots != UNCAST).all()
    assert drawn.ballots.tolist() == as_recorded(whole.ballots, 5).tolist()
    assert majority(drawn.ballots).tolist() == majority(whole.ballots).tolist()
    assert set(cast_in(drawn)) == {3, 4, 5}, "the test needs samples that are decided at every time"
    assert drawn.vote_evaluations < 0.9 * whole.vote_evaluations
    assert drawn.shared_evaluations == whole.shared_evaluations
    for name, classes in whole.contained.items():
        assert drawn.contained[name].tolist() == classes.tolist()


@pytest.mark.parametrize("votes", range(1, 6))
def test_a_member_predicts_what_it_does_alone_and_costs_what_it_would(pipeline, image, method, drawn, votes):
    """Exactly where all votes cost the same; those of ADDS are as long as what guidance left."""
    variant, alone = Variant(method, votes), chunk_of(pipeline, image, method, votes)
    tallies = [Tally(np.zeros(10, np.int64)) for _ in range(2)]
    for tally, chunk in zip(tallies, (drawn, alone), strict=True):
        tally.add(chunk, variant, N)
    assert predictions_of(variant, drawn)[0].tolist() == predictions_of(variant, alone)[0].tolist()
    assert tallies[1].evaluations == evaluations_of(alone), "whoever draws pays what was spent"
    exactly = method == "densepure" or votes == 5
    assert tallies[0].evaluations == pytest.approx(tallies[1].evaluations, rel=0 if exactly else 0.005)


def test_a_chunk_with_all_ballots_is_read_as_ever():
    ballots = np.array([[1, 2, 2, 2, 1], [3, 3, 3, 3, 3]], np.uint16)
    whole = Chunk("densepure", 0, "", "estimation", 0, ballots)
    for votes, predicted in ((1, [1, 3]), (3, [2, 3]), (5, [2, 3])):
        assert predictions_of(Variant("densepure", votes), whole)[0].tolist() == predicted
        spared = replace(whole, ballots=as_recorded(ballots, 5))
        assert predictions_of(Variant("densepure", votes), spared)[0].tolist() == predicted


def test_every_ballot_of_densepure_costs_its_steps(pipeline, image):
    """All ballots of a sample share one evaluation, which no later round makes again."""
    _, step = densepure.entry(pipeline.denoiser.schedule, pipeline.grid, Query(SIGMA))
    for votes in (1, 2, 5, 8):
        chunk = chunk_of(pipeline, image, "densepure", votes)
        assert chunk.shared_evaluations == N
        assert chunk.vote_evaluations == step * cast_in(chunk).sum()


@pytest.mark.parametrize(("sigma", "parting"), [(0.45, {0, 1}), (0.6, {1, 2})])
def test_every_ballot_of_adds_costs_what_guidance_left(pipeline, image, sigma, parting):
    noise = Noise(seed=0, stage="estimation", image=3, sigma=sigma)
    steps = guide(pipeline, Query(sigma, guidance_scale=SCALE), Subject(image, SAMPLES, noise)).steps.numpy()
    assert set(steps) == parting
    for votes in (1, 2, 5, 8):
        chunk = chunk_of(pipeline, image, "adds", votes, sigma)
        assert chunk.shared_evaluations == (19 - steps).sum() + N
        assert chunk.vote_evaluations == (steps * cast_in(chunk)).sum()


def test_samples_with_nothing_random_left_cost_no_votes(pipeline, image):
    """At a tiny sigma the budget outlasts the chain."""
    query, noise = Query(0.02, votes=5), Noise(seed=0, stage="estimation", image=3, sigma=0.02)
    ballots = adds.vote(pipeline, query, Subject(image, SAMPLES, noise))
    assert not ballots.vote_evaluations.any()
    assert pipeline.denoiser.evaluations == N * 20
    oneshot = ballots.contained["adds_oneshot"][:, None]
    assert torch.equal(ballots.classes[:, :3], oneshot.expand(-1, 3))
    assert bool((ballots.classes[:, 3:] == UNCAST).all())


def test_votes_are_the_same_in_one_round_or_in_many(pipeline):
    """They part at steps 0 to 4, so that some walk already where others start, or have nothing random left."""
    noise = Noise(seed=0, stage="estimation", image=3, sigma=SIGMA)
    states = noise.normal((1, 8, 8), samples=SAMPLES, timestep=1000)

    def fresh():
        steps = SAMPLES % 5
        return Continuations(pipeline.denoiser, pipeline.grid, states=states, steps=steps, samples=SAMPLES, noise=noise)

    def images(purified):
        owned = zip(purified.owner.tolist(), purified.vote.tolist(), purified.images, strict=True)
        return {(owner, vote): shown for owner, vote, shown in owned}

    once, rounds = fresh(), fresh()
    expected, found = images(once.run([1, 2, 3])), {}
    for votes, owners in (([1, 2], SAMPLES[10:50]), ([2, 3], SAMPLES[:20]), ([1, 2, 3], SAMPLES[40:]), ([3], SAMPLES)):
        found |= images(rounds.run(votes, owners))
    for key, shown in found.items():
        assert torch.equal(shown, expected[key]), key
    assert torch.equal(rounds.first, once.first)
