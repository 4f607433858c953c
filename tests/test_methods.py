import numpy as np
import pytest
import torch

from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import SHARED, Noise
from adds.diffusion.reverse import Continuations
from adds.methods import adds, adds_oneshot, carlini, densepure
from adds.methods.adds import guide
from adds.methods.base import Query, method, purify, vote
from adds.methods.majority import UNCAST, majority
from adds.methods.privacy import squared_budget
from adds.methods.release import Subject, release
from adds.models.pipeline import Pipeline
from adds.registry import METHODS
from tests.conftest import unet_pipeline
from tests.soundness.golden import READ
from tests.soundness.test_step import Uneven


def evaluations(name, pipeline, query, image):
    """How many ballots each sample casts, and how many evaluations all of them take."""
    before = pipeline.denoiser.evaluations
    ballots = vote(name, pipeline, query, subject(image, query.sigma))
    return (ballots.classes != UNCAST).sum(dim=1), pipeline.denoiser.evaluations - before


def noise_of(sigma):
    return Noise(seed=0, stage="estimation", image=0, sigma=sigma)


SAMPLES = torch.arange(24)


def subject(image, sigma, samples=SAMPLES):
    return Subject(image, samples, noise_of(sigma))


def released(pipeline, image, sigma, samples=SAMPLES):
    return release(pipeline.denoiser.schedule, subject(image, sigma, samples), sigma)


@pytest.mark.parametrize(
    ("ballots", "winner"),
    [
        ([1, 1, 2], 1),
        ([2, 1, 1], 1),
        ([3], 3),
        ([5, 2, 2, 5], 5),  # a tie goes to the class that was voted for first
        ([4, 9, 9, 4, 0], 4),
        ([7, 8, 9], 7),
        ([8, UNCAST, UNCAST], 8),
        ([6, 2, 2, UNCAST, UNCAST], 2),
    ],
)
def test_majority(ballots, winner):
    assert majority(np.array([ballots])).tolist() == [winner]


@pytest.fixture
def pipeline(schedule, unet):
    return unet_pipeline(schedule, unet, batch_size=16)


def test_densepure_steps_and_shared_first_evaluation(pipeline, image):
    """At sigma 1.0 the chain has 8 steps; all votes of a sample share the first evaluation."""
    for votes in (1, 5):
        cast, found = evaluations("densepure", pipeline, Query(1.0, votes), image)
        assert found == int((1 + 7 * cast).sum())


def test_adds_spends_no_evaluation_twice(pipeline, image):
    guided = guide(pipeline, Query(1.0), subject(image, 1.0))
    guided_evaluations = int((19 - guided.steps).sum())
    rest = guided.steps + 1  # evaluations of one continuation, step 0 included
    for votes in (1, 5):
        cast, found = evaluations("adds", pipeline, Query(1.0, votes), image)
        assert found == guided_evaluations + int((1 + cast * (rest - 1)).sum())
    assert evaluations("adds_oneshot", pipeline, Query(1.0), image)[1] == guided_evaluations + len(SAMPLES)


def test_carlini_is_one_evaluation_at_t_star(pipeline, image, schedule):
    before = pipeline.denoiser.evaluations
    purified = carlini.purify(pipeline, Query(0.5), released(pipeline, image, 0.5))
    assert pipeline.denoiser.evaluations - before == len(SAMPLES)
    t_star = schedule.first_as_noisy_as(0.5)
    abar = schedule.alphas_bar[t_star]
    normal = noise_of(0.5).normal((1, 8, 8), samples=SAMPLES, timestep=1000)
    x_t = abar**0.5 * (2 * image - 1 + 2 * 0.5 * normal)
    eps = pipeline.denoiser.network(x_t, torch.full((len(x_t),), t_star))[:, :1]
    expected = ((x_t - (1 - abar) ** 0.5 * eps) / abar**0.5).clamp(-1, 1)
    torch.testing.assert_close(purified.images, expected, rtol=1e-4, atol=1e-5)


def test_densepure_exact_enters_at_t_star(pipeline, image, schedule):
    query = Query(1.0, options={"start": "exact"})
    t_star = schedule.first_as_noisy_as(1.0)
    below = sum(t < t_star for t in pipeline.grid.timesteps)
    assert evaluations("densepure", pipeline, query, image)[1] == len(SAMPLES) * (below + 1)


@pytest.mark.parametrize("name", ["adds", "densepure", "adds_bridge"])
def test_the_first_vote_of_five_is_the_single_vote(pipeline, image, name):
    one = purify(name, pipeline, Query(1.0, 1), subject(image, 1.0))
    five = purify(name, pipeline, Query(1.0, 5), subject(image, 1.0))
    first = five.vote == 1
    order = one.owner.argsort(), five.owner[first].argsort()
    torch.testing.assert_close(one.images[order[0]], five.images[first][order[1]], rtol=1e-4, atol=1e-4)


def test_votes_of_one_sample_differ(pipeline, image):
    five = adds.purify(pipeline, Query(1.0, 5), subject(image, 1.0, SAMPLES[:1]))
    assert sorted(five.vote.tolist()) == [1, 2, 3, 4, 5]
    assert len({tuple(row.flatten().tolist()) for row in five.images}) == 5


def test_the_first_prediction_of_adds_is_adds_oneshot(pipeline, image):
    guided = guide(pipeline, Query(1.0), subject(image, 1.0))
    rest = {"states": guided.states, "steps": guided.steps, "samples": SAMPLES, "noise": noise_of(1.0)}
    continuations = Continuations(pipeline.denoiser, pipeline.grid, **rest)
    continuations.run([1])
    oneshot = adds_oneshot.purify(pipeline, Query(1.0), subject(image, 1.0))
    torch.testing.assert_close(continuations.first, oneshot.images, rtol=1e-4, atol=1e-4)


def test_unspent_budget_leaves_nothing_random_after_guidance(pipeline, image):
    """At a tiny sigma the budget outlasts the chain: all ADDS variants agree, one image stands for all votes."""
    query = Query(0.02, 5)
    five = adds.purify(pipeline, query, subject(image, 0.02))
    assert set(five.vote.tolist()) == {SHARED}
    oneshot = adds_oneshot.purify(pipeline, query, subject(image, 0.02))
    torch.testing.assert_close(five.images[five.owner.argsort()], oneshot.images)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_predicts_a_class_per_sample(pipeline, image, name):
    outcome = vote(name, pipeline, Query(0.7, readers=READ), subject(image, 0.7))
    assert outcome.classes.shape == (len(SAMPLES), 1)
    assert bool(((outcome.classes >= 0) & (outcome.classes < 10)).all())
    guided = METHODS[name].sees_image
    assert (outcome.budget_share is not None) == guided
    assert not guided or bool(((outcome.budget_share > 0) & (outcome.budget_share <= 1)).all())


def alike(one, other):
    """Whether two tensors, or the absence of both, are the same."""
    return one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("name", METHODS)
def test_images_side_by_side_are_as_they_are_alone(pipeline, image, name):
    """Ballots, costs and what was spent: of two images and of both stages, in one batch and in three."""
    query = Query(0.7, 5 if METHODS[name].takes_votes else 1, readers=READ)
    stages = [(image, 3, "estimation"), (1 - image, 4, "estimation"), (image, 3, "selection")]
    subjects = [
        Subject(pixels, torch.arange(first, first + 7), Noise(seed=0, stage=stage, image=number, sigma=0.7))
        for first, (pixels, number, stage) in enumerate(stages)
    ]
    before = pipeline.denoiser.evaluations
    together = vote(name, pipeline, query, Subject.together(subjects))
    made = pipeline.denoiser.evaluations - before
    if together.shared_evaluations is not None:
        of_votes = 0 if together.vote_evaluations is None else int(together.vote_evaluations.sum())
        assert int(together.shared_evaluations.sum()) + of_votes == made
    for place, one in enumerate(subjects):
        alone, part = vote(name, pipeline, query, one), slice(7 * place, 7 * place + 7)
        for field, found in vars(alone).items():
            beside = getattr(together, field)
            if field == "contained":
                assert all(torch.equal(beside[method][part], ballots) for method, ballots in found.items())
            else:
                assert alike(None if beside is None else beside[part], found), field


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": 0.0}, "sigma is 0.0"),
        ({"sigma": -1.0}, "sigma is -1.0"),
        ({"sigma": float("inf")}, "sigma is inf"),
        ({"votes": 0}, "votes is 0"),
        ({"guidance_scale": 1.1}, "guidance_scale is 1.1"),
    ],
)
def test_bad_queries(changes, message):
    with pytest.raises(ValueError, match=message):
        Query(**{"sigma": 0.5, **changes})


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.full((1, 8, 8), float("nan")), "NaN"),
        (torch.full((1, 8, 8), 1.5), r"values from 1.5 to 1.5.*\[0, 1\]"),
        (torch.full((1, 8, 8), -0.5), r"must be in \[0, 1\]"),
        (torch.zeros(8, 8), r"shape \(8, 8\)"),
        (torch.zeros(2, 1, 8, 8), r"shape \(2, 1, 8, 8\)"),  # two images, and random numbers of one
    ],
)
def test_bad_images(image, message):
    with pytest.raises(ValueError, match=message):
        subject(image, 0.5)


def test_options_are_those_of_the_record(pipeline, image):
    with pytest.raises(ValueError, match="start is 'late': densepure takes grid or exact"):
        densepure.vote(pipeline, Query(1.0, options={"start": "late"}), released(pipeline, image, 1.0))
    with pytest.raises(ValueError, match="method 'magic' doesn't exist: choose one of rs, carlini"):
        method("magic")


def test_adds_records_where_guidance_ended(schedule, pipeline, image):
    """The timestep of the state that comes next, and how much of the image took the last guided step unguided."""
    uneven = Pipeline(Denoiser(Uneven(), schedule, batch_size=8), pipeline.classifier, pipeline.grid)
    query, spent, before = Query(0.6, guidance_scale=0.5), {}, {}

    def observe(step):
        for sample, costs in zip(step.samples.tolist(), step.spent, strict=True):
            earlier = spent.get(sample, torch.zeros(1))
            before[sample] = float((earlier > (1 - 1e-4) * squared_budget(0.6)).float().mean())
            spent[sample] = costs

    guided = guide(uneven, query, subject(image, 0.6), observe)
    for module in (adds, adds_oneshot):
        outcome = module.vote(uneven, query, subject(image, 0.6))
        assert outcome.stop_timestep.tolist() == [uneven.grid.timesteps[step] for step in guided.steps.tolist()]
        assert outcome.spent_before.tolist() == pytest.approx([before[sample] for sample in SAMPLES.tolist()])
        assert len(set(before.values())) > 1
    oneshot = adds.vote(uneven, query, subject(image, 0.6)).contained["adds_oneshot"]
    assert oneshot.tolist() == outcome.classes[:, 0].tolist()


def test_an_even_number_of_votes_is_allowed(pipeline, image):
    two, one = (densepure.vote(pipeline, Query(1.0, votes), released(pipeline, image, 1.0)) for votes in (2, 1))
    assert majority(two.classes.numpy()).tolist() == majority(one.classes.numpy()).tolist(), (
        "a tie of two goes to the first vote"
    )
