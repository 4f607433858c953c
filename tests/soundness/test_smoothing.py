"""Soundness 3b, smoothing: what guided steps tell of the image is one sample of N(x, sigma^2 I), on real networks.

And how far rounding can spoil it: where the image enters, arithmetic is float64, and MIN_STD follows from its bound.
"""

import inspect
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from adds.data.digits import load_split
from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.noise import Noise
from adds.diffusion.reverse import reverse_step
from adds.diffusion.schedule import Schedule, evenly_spaced, to_model
from adds.methods import adds as guided_method
from adds.methods import guidance
from adds.methods.adds import guide
from adds.methods.base import Query
from adds.methods.guidance import walk
from adds.methods.privacy import MIN_STD, ROUNDINGS, SLIVER, covered_radius, rounding_loss
from adds.methods.release import Subject, release
from adds.models.embedded import embedded_pipeline
from adds.models.pipeline import Pipeline
from adds.monitor.audit import CHECKS, Audit, Errors, Recovery, check, noticeable_variances, recovered_errors
from tests.workflow import PROJECT

LARGEST = {"coordinates": 3 * 256 * 256, "steps": 19}
"""The paper's images, guided at every step but the last."""


@pytest.fixture(scope="module")
def networks():
    return embedded_pipeline(PROJECT / "weights/digits")


@pytest.fixture(scope="module")
def digits():
    test = load_split()[1]
    return [Picture.of(pixels, int(number)) for pixels, number in zip(test.images[:4], test.numbers[:4], strict=True)]


class Ragged:
    """A network whose variance differs by coordinate and by state, far outside its nominal range."""

    def __call__(self, x_t, timesteps):
        own = torch.linspace(-6, 6, x_t[0].numel()).view(x_t.shape[1:])
        return torch.cat([torch.tanh(x_t) + 0.001 * timesteps.view(-1, 1, 1, 1), 6 * torch.sin(3 * x_t) + own], dim=1)


def in_half_precision(x_t, timesteps):
    return Ragged()(x_t.half().float(), timesteps).half()


def ragged_pipeline(schedule, network=None):
    denoiser = Denoiser(network or Ragged(), schedule, batch_size=100)
    return Pipeline(denoiser, None, schedule.respaced(evenly_spaced(20, 1000)))  # type: ignore[arg-type]


@pytest.fixture
def ragged(schedule):
    return ragged_pipeline(schedule)


@pytest.mark.parametrize("sigma", [0.2, 0.4, 0.8, 1.5])
def test_guided_steps_of_the_digits_networks_are_one_release(networks, digits, sigma):
    errors = recovered_errors(networks, digits, sigma=sigma, guidance_scale=0.8, seed=3, trajectories=300)
    audit = Audit.of([errors])
    assert not audit.failures, audit.report()
    if sigma >= 0.4:
        assert errors.share == pytest.approx(1, abs=2 * SLIVER)
        assert noticeable_variances(errors, audit.level)[0] > 0.92, "the audit would see noise of 96% of its size"


@pytest.mark.parametrize(("sigma", "scale"), [(0.15, 0.9), (0.3, 0.5), (0.6, 0.7), (1.0, 1.0), (2.0, 0.3)])
def test_so_they_are_where_variances_depend_on_the_state(ragged, image, sigma, scale):
    errors = recovered_errors(ragged, [Picture.of(image)], sigma=sigma, guidance_scale=scale, seed=1, trajectories=1000)
    audit = Audit.of([errors])
    assert not audit.failures, audit.report()


def test_coordinates_ran_out_at_different_steps(ragged, image):
    """That the tests above try what they are meant to: other steps by coordinate, and budget left over."""
    guided = torch.zeros(100, 1, 8, 8)

    def observe(step):
        guided[step.samples] += (step.scale > 0).float()

    noise = Noise(seed=1, stage="selection", image=0, sigma=0.6)
    guide(ragged, Query(0.6, guidance_scale=0.7), Subject(image, torch.arange(100), noise), observe)
    assert all(len(steps.unique()) > 1 for steps in guided)
    assert len(guided.unique()) > 3
    left = recovered_errors(ragged, [Picture.of(image)], sigma=0.15, guidance_scale=0.9, seed=1, trajectories=100)
    assert 0.1 < left.share < 0.9


def broken_guide(*changes):
    """Return `guide` with some of its and `walk`'s text replaced, among the names of their modules."""
    text, names = inspect.getsource(walk) + inspect.getsource(guide), {**vars(guidance), **vars(guided_method)}
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is no longer in the code: mend this test"
        text = text.replace(old, new)
    exec(compile(text, "broken", "exec"), names)
    return names["guide"]


CHARGED = "coef_x0=float(grid.coef_x0[step]), std=prediction.std)"
USED = "            std=paid.std,\n            normal=noise"
ALLOWED = "paid.scale.double()"
GUIDED = "x0=x0 + paid.scale.double() * (image_of(image, seen) - x0),"
STEPS = "for step in range(len(grid) - 1, 0, -1):"
SPENT = "        x_t = take("
BREAKAGES = {
    "unit: sigma for 2 sigma": (1.0, {"adds.methods.privacy.squared_budget": lambda sigma: 1 / sigma**2}, []),
    "unit: the image twice as large": (1.0, {"adds.methods.adds.to_model": lambda image: 2 * to_model(image)}, []),
    "budget: mu for mu^2": (1.0, {"adds.methods.privacy.squared_budget": lambda sigma: 1 / (2 * sigma)}, []),
    "std: charged, not used": (0.8, {}, [(USED, USED.replace("=paid", "=0.9 * paid"))]),
    "std: used, not charged": (0.8, {}, [(CHARGED, CHARGED.replace("prediction", "1.1 * prediction"))]),
    "coefficient: another step's is charged": (0.8, {}, [(CHARGED, CHARGED.replace("[step]", "[step - 1]"))]),
    "scale: applied twice": (0.8, {}, [(GUIDED, GUIDED.replace("* (image", "* (2 - paid.scale) * (image"))]),
    "scale: asked for, not paid for": (
        0.8,
        {},
        [(GUIDED, GUIDED.replace(ALLOWED, "query.guidance_scale"))],
    ),
    "step 0 is guided": (
        0.1,
        {},
        [
            (STEPS, STEPS.replace("0, -1", "-1, -1")),
            (SPENT, f"        scale = scale if step else (filter_.budget > 0) * query.guidance_scale\n{SPENT}"),
        ],
    ),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
@pytest.mark.parametrize("world", ["digits", "ragged"])
def test_the_audit_sees_a_mistake(networks, digits, ragged, image, monkeypatch, world, breakage):
    sigma, patches, changes = BREAKAGES[breakage]
    pipeline, pictures = {"digits": (networks, digits), "ragged": (ragged, [Picture.of(image)])}[world]
    for name, value in patches.items():
        monkeypatch.setattr(name, value)
    monkeypatch.setattr("adds.monitor.audit.guide", broken_guide(*changes))
    errors = recovered_errors(pipeline, pictures, sigma=sigma, guidance_scale=0.8, seed=3, trajectories=120)
    audit = Audit.of([errors])
    assert audit.failures
    assert min(one.p for one in audit.failures) < 1e-6, "no matter of chance"
    assert audit.verdict().startswith("FAILED")


def test_unbroken_the_text_is_the_function(networks, digits, monkeypatch):
    """What the mistakes above are put into passes without them."""
    monkeypatch.setattr("adds.monitor.audit.guide", broken_guide())
    for sigma in (0.1, 1.0):
        errors = recovered_errors(networks, digits, sigma=sigma, guidance_scale=0.8, seed=3, trajectories=120)
        assert not Audit.of([errors]).failures


def normal_errors(rng, n=100, d=64):
    values, images = rng.normal(size=(n, d)), rng.uniform(-1, 1, size=(n, d))
    return Errors(1.0, values, images, rng.normal(size=n), np.ones(n), 1.0)


def test_false_alarms_are_as_rare_as_stated():
    rng, rounds = np.random.default_rng(0), 300
    p = np.array([[one.p for one in check(normal_errors(rng))] for _ in range(rounds)])
    for level in (0.2, 0.05, 0.01, 0.001):
        alarms = (p < level).sum(axis=0)
        assert (alarms <= stats.binom.ppf(0.9999, rounds, level)).all(), dict(zip(CHECKS, alarms, strict=True))
    assert (p < 0.001 / len(CHECKS)).any(axis=1).sum() <= stats.binom.ppf(0.9999, rounds, 0.001)


@pytest.mark.parametrize("side", [0, 1])
def test_the_wrong_variance_that_is_stated_is_noticed(side):
    rng, level = np.random.default_rng(1), 0.001 / 21
    wrong = noticeable_variances(normal_errors(rng), level)[side]
    sound = (normal_errors(rng) for _ in range(300))
    scaled = (replace(errors, values=np.sqrt(wrong) * errors.values) for errors in sound)
    seen = sum(CHECKS["variance"](errors)[1] < level for errors in scaled)
    assert stats.binom.ppf(1e-4, 300, 0.99) <= seen
    assert 0.85 < wrong < 1.18


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("mean", lambda e, _: e + 0.3 * np.cos(np.arange(64))),
        ("mean along the image", lambda e, x: e + 0.2 * x),
        ("worst coordinate", lambda e, _: e * np.where(np.arange(64) == 5, 0.5, 1)),
        ("normality", lambda e, _: np.sign(e) * np.sqrt(np.abs(e)) / np.sqrt(np.sqrt(2 / np.pi))),
        ("lengths", lambda e, _: e * np.where(np.arange(100) % 2, 0.8, 1.166)[:, None]),
        ("independence", lambda e, _: (e + np.roll(e, 1, axis=1)) / np.sqrt(2)),
    ],
)
def test_each_check_sees_what_it_is_for(name, spoil):
    sound = normal_errors(np.random.default_rng(2))
    found = check(replace(sound, values=spoil(sound.values, sound.images)))
    assert next(one for one in found if one.name == name).p < 1e-6


# Rounding


def rounded_once(step, image, normal, grid):
    """The guided step of every coordinate in exact fractions, rounded to float32."""
    c0, c1 = Fraction(float(grid.coef_x0[step.step])), Fraction(float(grid.coef_xt[step.step]))
    tensors = (step.x_t, step.x0, step.scale, step.std, normal, image.expand_as(step.x_t))
    rows = zip(*(tensor.flatten().tolist() for tensor in tensors), strict=True)
    exact = []
    for values in rows:
        x_t, x0, s, std, z, pixel = map(Fraction, values)
        exact.append(float(c0 * (x0 + s * (2 * pixel - 1 - x0)) + c1 * x_t + std * z))
    return np.array(exact).astype(np.float32)


def wrongly_rounded(schedule, image, guide, network):
    """The share of states that are not the exact ones, rounded once; and the types of all that was recorded."""
    pipeline, steps = ragged_pipeline(schedule, network), []
    noise = Noise(seed=0, stage="estimation", image=0, sigma=0.5)
    guided = guide(pipeline, Query(0.5), Subject(image, torch.arange(4), noise), steps.append)
    wrong = total = 0
    for step in steps:
        normal = noise.normal((1, 8, 8), samples=step.samples, timestep=pipeline.grid.timesteps[step.step])
        assert normal.dtype == torch.float32
        wrong += int((rounded_once(step, image, normal, pipeline.grid) != step.x_prev.flatten().numpy()).sum())
        total += step.x_prev.numel()
    types = {name: {getattr(step, name).dtype for step in steps} for name in ("x_t", "x0", "scale", "std", "x_prev")}
    return wrong / total, {**types, "spent": {step.spent.dtype for step in steps}, "states": {guided.states.dtype}}


@pytest.mark.parametrize("network", [Ragged(), in_half_precision], ids=["float32", "half precision"])
def test_guided_steps_are_exact_but_for_one_rounding(schedule, image, network):
    """Whatever the network computes in: states, noise and predictions are float32, the account is float64."""
    share, types = wrongly_rounded(schedule, image, guide, network)
    assert share < 1e-3, "a tie by chance"
    assert types.pop("spent") == {torch.float64}
    assert all(found == {torch.float32} for found in types.values()), types


@pytest.mark.parametrize(
    "change",
    [
        (GUIDED, "x0=(x0 + paid.scale.double() * (image_of(image, seen) - x0)).float(),"),
        ("x0, seen = paid.x0.double(), samples[paid.active]", "x0, seen = paid.x0, samples[paid.active]"),
    ],
    ids=["the guided x0 is rounded", "guided in float32"],
)
def test_a_rounding_more_is_seen(schedule, image, change):
    changes = [change] if change[0] == GUIDED else [change, (GUIDED, "x0=x0 + paid.scale * (image.float() - x0),")]
    assert wrongly_rounded(schedule, image, broken_guide(*changes), Ragged())[0] > 0.05


def test_a_noised_image_is_rounded_once(schedule, image):
    noise, samples = Noise(seed=0, stage="estimation", image=0, sigma=0.3), torch.arange(50)
    found = release(schedule, Subject(image, samples, noise), 0.3).y
    normal = noise.normal((1, 8, 8), samples=samples, timestep=1000)
    exact = [
        float(2 * Fraction(x) - 1 + Fraction(0.6) * Fraction(z))
        for x, z in zip(image.expand_as(normal).flatten().tolist(), normal.flatten().tolist(), strict=True)
    ]
    assert found.dtype == torch.float32
    assert np.mean(found.flatten().numpy() != np.array(exact).astype(np.float32)) < 1e-3, "a tie by chance"


def test_rounding_of_a_guided_mean_is_within_its_bound(schedule):
    """ROUNDINGS, against exact fractions, for states as large as a grid of 20 steps allows."""
    grid, rng = schedule.respaced(evenly_spaced(20, 1000)), np.random.default_rng(0)
    largest = 9.5  # of the random numbers
    for step in range(19, 0, -1):
        spread = float(np.exp(grid.log_variance_max[step] / 2))
        largest = max(largest, grid.coef_x0[step] + grid.coef_xt[step] * largest + 9.5 * spread)
    assert 9 + largest <= ROUNDINGS
    worst = Fraction(0)
    for step in (1, 5, 10, 19):
        pixel, x0, s, x_t = (rng.uniform(low, 1, size=500).astype(np.float32) for low in (0, -1, 0, -1))
        x_t *= np.float32(31)
        parts = [torch.tensor(part).double() for part in (pixel, x0, s, x_t)]
        guided = parts[1] + parts[2] * (to_model(parts[0]) - parts[1])
        none = torch.zeros_like(guided)
        found = reverse_step(x_t=parts[3], x0=guided, std=none, normal=none, grid=grid, step=step).tolist()
        c0, c1 = Fraction(float(grid.coef_x0[step])), Fraction(float(grid.coef_xt[step]))
        for mean, *values in zip(found, pixel.tolist(), x0.tolist(), s.tolist(), x_t.tolist(), strict=True):
            p, predicted, scale, state = map(Fraction, values)
            exact = c0 * (predicted + scale * (2 * p - 1 - predicted)) + c1 * state
            worst = max(worst, abs(Fraction(mean) - exact))
    assert 1 < worst * 2**53 < ROUNDINGS


def test_min_std_is_large_enough_and_half_of_it_is_not():
    """Rounding is paid for by what is held back in every certificate of sigma / 1000 or more."""
    assert covered_radius(**LARGEST, std=MIN_STD) <= 1e-3
    assert covered_radius(**LARGEST, std=MIN_STD / 2) > 1e-3
    assert rounding_loss(**LARGEST, std=MIN_STD) < 1e-8


def test_the_bound_on_rounding_is_what_it_says():
    """sqrt(1 - h) r + loss <= r from r = covered_radius on, and not for less than half of it."""
    loss, radius = rounding_loss(**LARGEST, std=MIN_STD), covered_radius(**LARGEST, std=MIN_STD)
    kept = 1 - (SLIVER - 2**-22)
    assert np.sqrt(kept) * radius + loss <= radius * (1 + 1e-12)
    assert np.sqrt(kept) * 0.4 * radius + loss > 0.4 * radius


def test_nominal_noise_counts():
    """No step of a 20-step grid, and none of a 250-step one, has so little noise that it isn't guided."""
    for name in ("linear", "cosine"):
        for steps in (20, 250):
            grid = Schedule.named(name, 1000).respaced(evenly_spaced(steps, 1000))
            assert np.exp(grid.log_variance_min[1:] / 2).min() > MIN_STD


def test_a_step_without_noise_tells_everything(ragged, image):
    """Recovery gives no finite release where a coordinate is guided and nothing is added to it."""
    recovery = Recovery(ragged.grid, to_model(image.double()), 1)
    flat = torch.zeros(1, 1, 8, 8)
    step = guided_method.GuidedStep(
        1, torch.zeros(1, dtype=torch.long), flat, flat, flat + 0.5, flat, flat + 1, flat.double()
    )
    recovery.observe(step)
    assert not bool(torch.isfinite(recovery.release(1.0, flat)).any())
