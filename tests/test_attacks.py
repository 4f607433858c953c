"""The attacks of `studies.attacks`, where the answer is known in closed form, and their gradients."""

import pytest
import torch
from scipy.special import ndtr
from studies.attacks import (
    ALPHA,
    ATTACKED,
    EFFORT,
    INSIDE,
    SCREENING,
    AnyImage,
    Effort,
    Victim,
    attack,
    beyond_row,
    certified,
    confirmed,
    descend,
    differentiable,
    first_starts,
    inside_row,
    logits,
    margin,
    steepness,
    too_steep,
)
from torch import Tensor

from adds.data.digits import load_split
from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import Noise
from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.methods.base import Query, vote
from adds.methods.release import Subject
from adds.models.embedded import embedded_pipeline
from adds.models.pipeline import BatchedClassifier, Pipeline

SIGMA = 0.5


@pytest.fixture(scope="module")
def networks() -> Pipeline:
    return embedded_pipeline(batch_size=12)


@pytest.fixture(scope="module")
def digit() -> Tensor:
    return torch.as_tensor(load_split()[1].images[11])


def noise() -> Noise:
    return Noise(seed=5, stage="estimation", image=7, sigma=SIGMA)


@pytest.mark.parametrize("seed", range(3))
def test_the_attack_finds_the_nearest_boundary_of_a_linear_classifier(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, 16, generator=generator)
    image = torch.rand(1, 4, 4, generator=generator)
    values = weight @ image.flatten()
    about = int(values.argmax())
    others = [c for c in range(5) if c != about]
    distance = min(float((values[about] - values[c]) / (weight[about] - weight[c]).norm()) for c in others)

    def logits_of(changed: Tensor, _samples: Tensor) -> Tensor:
        return (weight @ changed.flatten())[None]

    def broken(radius: float) -> bool:
        starts = first_starts(image, values.numpy(), about, radius=radius, restarts=5, carried=())
        ends = [
            descend(
                logits_of,
                image,
                change,
                radius=radius,
                about=about,
                rival=rival,
                effort=EFFORT["bare"],
                first_sample=0,
            )
            for change, rival in starts
        ]
        assert all(float(end.norm()) <= radius for end in ends)
        return any(int(logits_of(image + end, torch.arange(1)).argmax()) != about for end in ends)

    assert broken(1.03 * distance)
    assert not broken(0.999 * distance)


@pytest.mark.parametrize("name", ATTACKED)
def test_the_pass_with_gradients_predicts_what_the_library_does(networks: Pipeline, digit: Tensor, name: str) -> None:
    samples = torch.arange(12)
    found = logits(differentiable(networks), name, Query(SIGMA), AnyImage(digit, samples, noise())).argmax(dim=1)
    expected = vote(name, networks, Query(SIGMA), Subject(digit, samples, noise())).classes[:, 0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("name", "tolerance"), [("rs", 0.02), ("carlini", 0.02), ("adds_oneshot", 0.1), ("adds", 0.1)])
def test_gradients_are_those_of_finite_differences(
    networks: Pipeline, digit: Tensor, name: str, tolerance: float
) -> None:
    """But for the standard deviations of the guided chain, which gradients leave out."""
    with_gradients, samples = differentiable(networks), torch.arange(12)

    def loss(image: Tensor) -> Tensor:
        return margin(logits(with_gradients, name, Query(SIGMA), AnyImage(image, samples, noise())), 9, 3)

    image = digit.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(image), image)
    direction = gradient / gradient.norm()
    with torch.no_grad():
        step = 2e-3
        slope = (loss(digit + step * direction) - loss(digit - step * direction)) / (2 * step)
    assert float(slope) == pytest.approx(float(gradient.norm()), rel=tolerance)


class HalfSpace(torch.nn.Module):
    """Tells whether the first pixel is above 0.5 + threshold; a third class never wins."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, images: Tensor) -> Tensor:
        # In [-1, 1] everything is twice as large, so that this is the signed distance in [0, 1].
        distance = images.flatten(1)[:, 0] / 2 - self.threshold
        return torch.stack([distance, -distance, torch.full_like(distance, -9.0)], dim=1)


def half_space(threshold: float) -> Victim:
    schedule = Schedule.named("linear", 1000)
    pipeline = Pipeline(
        Denoiser(lambda x_t, _timesteps: x_t, schedule),
        BatchedClassifier(HalfSpace(threshold), classes=3, batch_size=90),
        schedule.respaced(evenly_spaced(20, 1000)),
    )
    return Victim("rs", SIGMA, 3, differentiable(pipeline), pipeline)


@pytest.mark.parametrize("distance", [0.2, 0.45])
def test_no_attack_inside_succeeds_and_one_beyond_does(distance: float) -> None:
    """Smoothed, a half-space is the same half-space: the certificate is tight, and the distance known."""
    victim = half_space(-distance)
    image = torch.full((1, 2, 2), 0.5)
    assert float(victim.logits(image, torch.arange(4000))[:, 0].mean()) == pytest.approx(distance, abs=0.05)
    known = certified(victim, Picture.of(image.numpy(), 3))
    assert known.about == 0
    assert 0.7 * distance < known.pair <= distance
    radius = INSIDE * known.pair
    starts = first_starts(image, known.counts, 0, radius=radius, restarts=3, carried=())
    effort = Effort(restarts=3, steps=10, draws=16)
    attempts = attack(victim, image, starts, radius=radius, about=0, effort=effort, first_sample=0, screening=SCREENING)
    inside = inside_row(victim, image, known, attempts)
    assert inside["attacks"] == 3
    assert inside["changes"] == inside["too_steep"] == 0
    for attempt in attempts:
        assert confirmed(victim, image, attempt, 0)[1] > ALPHA
    beyond = beyond_row(victim, image, known, attempts)
    assert distance < beyond["broken"] < 2 * distance
    assert beyond["becomes"] == 1
    assert beyond["steepness"] == pytest.approx(1, abs=0.15)


def test_steepness_of_a_half_space_is_one() -> None:
    def hits(z: float) -> tuple[int, int]:
        return round(100_000 * float(ndtr(z))), 100_000

    assert steepness(hits(1.0), hits(0.4), distance=0.6 * SIGMA, sigma=SIGMA) == pytest.approx(1, abs=0.01)
    assert not too_steep(hits(1.0), hits(0.4), distance=0.6 * SIGMA, sigma=SIGMA)
    assert too_steep(hits(1.0), hits(0.4), distance=0.5 * SIGMA, sigma=SIGMA)
