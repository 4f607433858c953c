"""Readers of one release: what they are given, that bridges are ADDS in law, and that consensus is a mean."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, ks_2samp

from adds.data.digits import load_split
from adds.diffusion.noise import SHARED, Noise
from adds.methods import adds, adds_bridge, consensus
from adds.methods.adds import guide
from adds.methods.base import Query, method, purify, vote
from adds.methods.carlini import denoise
from adds.methods.entering import enter, entry_timestep
from adds.methods.majority import majority
from adds.methods.release import Release, Subject, release
from adds.models.embedded import embedded_pipeline
from adds.registry import METHODS
from tests.conftest import unet_pipeline
from tests.soundness.golden import READ

SEEING = {name for name, record in METHODS.items() if record.sees_image}
READING = sorted(set(METHODS) - SEEING)


def noise_of(sigma, seed=0, image=0):
    return Noise(seed=seed, stage="estimation", image=image, sigma=sigma)


def released(pipeline, image, sigma, count, seed=0):
    subject = Subject(image, torch.arange(count), noise_of(sigma, seed))
    return release(pipeline.denoiser.schedule, subject, sigma)


@pytest.fixture
def pipeline(schedule, unet):
    return unet_pipeline(schedule, unet, batch_size=16)


# What a reader is given


def test_only_the_papers_adds_is_given_the_image():
    assert {"adds", "adds_oneshot"} == SEEING


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_is_given(name):
    """mypy holds each module to it: a reader's functions have no argument that an image could come in by."""
    module, allowed = method(name), Subject if name in SEEING else Release
    for function in filter(None, (getattr(module, entry, None) for entry in ("vote", "purify", "posterior"))):
        kinds = [parameter.annotation for parameter in inspect.signature(function).parameters.values()]
        assert kinds[-1] is allowed
        assert {kind.__name__ for kind in kinds[:-1]} == {"Pipeline", "Query"}


def test_a_release_holds_no_image_and_a_query_none_either():
    assert {field.name for field in fields(Release)} == {"y", "samples", "noise"}
    assert not any("image" in field.name for field in fields(Query))


@pytest.mark.parametrize("name", READING)
def test_readers_see_nothing_but_y(pipeline, image, name):
    """Another image whose noise makes up for the difference gives the same y, and so the same ballots."""
    query = Query(0.6, votes=3 if METHODS[name].takes_votes else 1, readers=READ)
    seen = released(pipeline, image, query.sigma, 8)
    # what is left when the image is forgotten: y, the samples' numbers and random numbers that know no image
    forgotten = Release(seen.y.clone(), torch.arange(8), noise_of(query.sigma).beside(1000))
    ballots = vote(name, pipeline, query, Subject(image, torch.arange(8), noise_of(query.sigma)))
    assert method(name).vote(pipeline, query, forgotten).classes.tolist() == ballots.classes.tolist()


def test_the_noise_of_a_release_can_not_be_drawn_again(pipeline, image):
    """From y and its noise anybody could tell the image."""
    seen = released(pipeline, image, 0.6, 4)
    for votes in ({}, {"votes": SHARED}, {"votes": torch.tensor([1, 1, SHARED, 1])}):
        with pytest.raises(PermissionError, match="was released"):
            seen.noise.normal((1, 8, 8), samples=seen.samples, timestep=1000, **votes)
    own = seen.noise.normal((1, 8, 8), samples=seen.samples, votes=1, timestep=1000)
    noise = (seen.y - (2 * image - 1)) / 1.2
    assert abs(float((own * noise).mean())) < 4 / np.sqrt(own.numel()), "independent"


@pytest.mark.parametrize("name", READING)
def test_a_readers_noise_is_not_the_releases(schedule, unet, image, name, monkeypatch):
    """Whatever a reader draws has other numbers than y's noise, whose place is (SHARED, the schedule's length)."""
    drawn, original = [], Noise.normal

    def normal(self, shape, *, samples, votes=SHARED, timestep):
        drawn.append((timestep, torch.as_tensor(votes).unique().tolist()))
        return original(self, shape, samples=samples, votes=votes, timestep=timestep)

    pipeline = unet_pipeline(schedule, unet, batch_size=16)
    seen = released(pipeline, image, 0.6, 4)
    monkeypatch.setattr(Noise, "normal", normal)
    method(name).vote(pipeline, Query(0.6, votes=2 if METHODS[name].takes_votes else 1, readers=READ), seen)
    assert all(timestep < 1000 or SHARED not in votes for timestep, votes in drawn)


def test_methods_share_their_release(pipeline, image):
    """RS, Carlini and whoever reads y see the same one for the same sample."""
    subject = Subject(image, torch.arange(5), noise_of(0.7))
    one, other = (release(pipeline.denoiser.schedule, subject, 0.7).y for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["carlini", "densepure"])
@pytest.mark.parametrize("start", ["exact", "grid"])
def test_noise_of_the_timestep_is_never_less_than_sigmas(pipeline, image, name, start):
    """x_t = sqrt(abar) x + N(0, 1 - abar): the release, and independent noise for what it lacks."""
    schedule, sigma = pipeline.denoiser.schedule, 0.6
    seen = released(pipeline, image, sigma, 4000)
    states = {}
    for noise in ("sigma", "timestep"):
        query = Query(sigma, options={"start": start, "noise": noise})
        first = entry_timestep(schedule, pipeline.grid, query, name)
        states[noise] = enter(schedule, first, query, name, seen)
    abar = float(schedule.alphas_bar[first])
    assert (first in pipeline.grid.timesteps) == (start == "grid")
    torch.testing.assert_close(states["sigma"], abar**0.5 * seen.y)
    error = states["timestep"] - abar**0.5 * (2 * image - 1)
    assert float(error.var()) == pytest.approx(1 - abar, rel=0.02)
    assert 1 - abar >= abar * (2 * sigma) ** 2
    added = states["timestep"] - states["sigma"]
    correlation = (added * (seen.y - (2 * image - 1))).mean() / (2 * sigma)
    assert abs(float(correlation)) < 5 * float(added.std()) / np.sqrt(added.numel())


def test_options_that_are_left_out_are_the_defaults(pipeline, image):
    """Carlini enters at t* and DensePure on the grid, both with sigma's noise."""
    seen = released(pipeline, image, 0.6, 6)
    for name, start in (("carlini", "exact"), ("densepure", "grid")):
        plain, told = (
            method(name).purify(pipeline, Query(0.6, options=options), seen).images
            for options in ({}, {"start": start, "noise": "sigma"})
        )
        assert torch.equal(plain, told)
    expected = denoise(pipeline.denoiser, seen.y, 0.6)
    assert torch.equal(method("carlini").purify(pipeline, Query(0.6), seen).images, expected)


# Bridges


@pytest.fixture(scope="module")
def networks():
    return embedded_pipeline("weights/digits")


COUNT = 450


@pytest.mark.parametrize("sigma", [0.4, 0.8])
def test_one_bridge_has_the_law_of_adds(networks, sigma):
    """On the digits' own networks: the states at the stop, when they stop, and what is predicted in either ending."""
    _, test = load_split()
    image, samples, query = torch.from_numpy(test.images[3]), torch.arange(COUNT), Query(sigma)
    subject = Subject(image, samples, noise_of(sigma))
    guided = guide(networks, query, subject)
    seen = released(networks, image, sigma, COUNT, seed=1)
    bridged = adds_bridge.bridges(networks, query, seen, [1], samples)
    pairs = list(zip(guided.states.flatten(1).T, bridged.states.flatten(1).T, strict=True))
    p_values = [ks_2samp(one, other).pvalue for one, other in pairs]
    assert min(p_values) > 1e-4
    assert 0.3 < np.mean(p_values) < 0.7
    # how a state lies to the image: what a wrong mean or variance of the increments would change
    along = [(states.flatten(1) @ (2 * image - 1).flatten()) for states in (guided.states, bridged.states)]
    sizes = [states.flatten(1).norm(dim=1) for states in (guided.states, bridged.states)]
    assert min(ks_2samp(*along).pvalue, ks_2samp(*sizes).pvalue) > 1e-3
    assert torch.equal(guided.steps.unique(), bridged.steps.unique())
    theirs = adds.vote(networks, query, subject)
    for ending, ballots in (("denoised", theirs.classes[:, 0]), ("oneshot", theirs.contained["adds_oneshot"])):
        ours = adds_bridge.vote(networks, Query(sigma, options={"ending": ending}), seen).classes[:, 0]
        table = np.stack([np.bincount(found, minlength=10) for found in (ballots, ours)])
        table = table[:, table.sum(axis=0) > 10]
        assert chi2_contingency(table).pvalue > 1e-3, ending


def test_a_bridge_ends_where_it_is_to_end():
    """With almost all spent, W / mu^2 is y, whatever the steps; before, W is normal around its share."""
    y = torch.tensor([[0.3], [-2.0]]).double()
    bridge = adds_bridge.Bridge(y, 0.5)
    for cost in (0.2, 0.5, 0.3 - 1e-12):
        bridge.advance(torch.arange(2), torch.full((2, 1), cost, dtype=torch.float64), torch.randn(2, 1).double())
    torch.testing.assert_close(bridge.seen, y, rtol=1e-4, atol=1e-5)
    many = adds_bridge.Bridge(torch.full((40000, 1), 0.8), 0.5)
    for cost in (0.1, 0.25):
        many.advance(torch.arange(40000), torch.full((40000, 1), cost).double(), torch.randn(40000, 1).double())
    share = 0.35
    assert float(many.seen.mean()) == pytest.approx(share * 0.8, abs=5 * np.sqrt(share * (1 - share) / 40000))
    assert float(many.seen.var()) == pytest.approx(share * (1 - share), rel=0.04)


def test_the_image_shows_in_a_bridge_only_through_y(networks):
    """The mean over many y is the mean of guided states: a bridge leads to y, not somewhere else."""
    _, test = load_split()
    image = torch.from_numpy(test.images[3])
    seen = released(networks, image, 0.4, 60, seed=2)
    states = [adds_bridge.bridges(networks, Query(0.4), seen, [vote], torch.arange(60)).states for vote in (1, 2)]
    of_one_y = (states[0] - states[0].mean(0)).flatten() @ (states[1] - states[1].mean(0)).flatten()
    assert float(of_one_y) > 0.2 * float((states[0] - states[0].mean(0)).square().sum()), "two bridges share their y"


@pytest.mark.parametrize("ending", ["oneshot", "denoised"])
def test_fewer_bridges_are_the_first_of_more(pipeline, image, ending):
    seen = released(pipeline, image, 0.8, 12)
    nine, three = (
        adds_bridge.vote(pipeline, Query(0.8, votes, options={"ending": ending}), seen).classes.numpy()
        for votes in (9, 3)
    )
    assert majority(nine[:, :3]).tolist() == majority(three).tolist()


def test_endings_and_evaluations(pipeline, image):
    """One shot: as many evaluations as guided steps, and one; to the end: the whole grid."""
    seen = released(pipeline, image, 0.8, 6)
    guided = adds_bridge.bridges(pipeline, Query(0.8), seen, [1], torch.arange(6))
    before = pipeline.denoiser.evaluations
    oneshot = adds_bridge.purify(pipeline, Query(0.8), seen)
    assert (
        pipeline.denoiser.evaluations - before == int((19 - guided.steps).sum()) + 6 == int(oneshot.evaluations.sum())
    )
    query = Query(0.8, votes=2, options={"ending": "denoised"})
    assert int(adds_bridge.purify(pipeline, query, seen).evaluations.sum()) == 2 * 6 * 20


# Consensus


def test_consensus_is_the_weighted_mean(pipeline, image):
    seen, readers = released(pipeline, image, 0.6, 10), {"rs_trained": 1.0, "bayes": 3.0, "adds_bridge": 0.5}
    query = Query(0.6, readers=readers, options={"bridges": "5"})
    parts = {name: method(name).posterior(pipeline, Query(0.6, votes=5), seen) for name in readers}
    expected = sum(weight * parts[name] for name, weight in readers.items()) / 4.5
    found = consensus.posterior(pipeline, query, seen)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(10))
    assert consensus.vote(pipeline, query, seen).classes[:, 0].tolist() == expected.argmax(dim=1).tolist()


def test_a_bridges_posterior_is_the_mean_of_its_votes(pipeline, image):
    seen, query = released(pipeline, image, 0.6, 6), Query(0.6, votes=3)
    purified = purify("adds_bridge", pipeline, query, Subject(image, torch.arange(6), noise_of(0.6)))
    expected = torch.zeros(6, 10)
    for owner, probabilities in zip(purified.owner, pipeline.classifier.probabilities(purified.images), strict=True):
        expected[owner] += probabilities / 3
    torch.testing.assert_close(adds_bridge.posterior(pipeline, query, seen), expected)
