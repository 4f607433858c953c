"""Soundness 4, known truth: a closed-form world in which every true radius is known.

Data are N(0, tau^2 I), so the optimal denoiser is linear, and the classifier takes the sign of the first
coordinate. By symmetry the smoothed classifier's boundary is the plane x_1 = 0: the true robust radius is the
distance to it. The state of every chain is Gaussian, so its class probabilities have a closed form too.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from adds.certificates.certificate import certify
from adds.data.images import Picture
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import evenly_spaced
from adds.methods.base import Query
from adds.methods.densepure import entry
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.registry import Variant
from adds.sampling.counting import Request
from adds.sampling.sampler import Sampler
from adds.sampling.votes import predictions_of
from tests.conftest import GaussianWorld, sign_of_first_coordinate

TAU, SCALE, ALPHA, N0, N = 0.3, 0.8, 0.001, 100, 1000
SIGMAS = (0.25, 1.0, 2.0)
POINTS = 100
FAMILIES = {
    "rs": [Variant("rs", 1)],
    "carlini": [Variant("carlini", 1)],
    "densepure": [Variant("densepure", 5), Variant("densepure", 1)],
    "adds": [Variant("adds", 5), Variant("adds", 1), Variant("adds_oneshot", 1)],
}
"""The first of each draws the samples, which hold the others'."""


@dataclass
class Chain:
    """x_t = signal * x + N(0, noise^2), then x_end = gain * x_t + N(0, spread^2), all in the model's units."""

    signal: float
    noise: float
    gain: float = 1.0
    spread: float = 0.0

    def probability_of_right_sign(self, x, votes):
        def of_state(x_t):
            single = float(x_t > 0) if self.spread == 0 else stats.norm.cdf(self.gain * x_t / self.spread)
            return stats.binom.sf(votes // 2, votes, single)

        if self.spread == 0:
            return stats.norm.cdf(self.signal * x / self.noise)
        density = stats.norm(self.signal * x, self.noise)
        low, high = density.ppf([1e-12, 1 - 1e-12])
        return integrate.quad(lambda x_t: density.pdf(x_t) * of_state(x_t), low, high, limit=200)[0]


def x0_slope(abar):
    return np.sqrt(abar) * TAU**2 / (abar * TAU**2 + 1 - abar)


def unguided_rest(grid, step):
    """(gain, spread) of the chain from ``step`` to its end."""
    gain, variance = 1.0, 0.0
    for i in range(step, 0, -1):
        factor = grid.coef_x0[i] * x0_slope(grid.alphas_bar[i]) + grid.coef_xt[i]
        step_variance = np.exp((grid.log_variance_min[i] + grid.log_variance_max[i]) / 2)
        gain, variance = factor * gain, factor**2 * variance + step_variance
    last = x0_slope(grid.alphas_bar[0])
    return last * gain, last * np.sqrt(variance)


def exact_chain(method, sigma, schedule, grid):
    if method == "rs":
        return Chain(1.0, 2 * sigma)
    if method == "carlini":
        return Chain(1.0, 2 * sigma)  # the x0 prediction keeps the sign
    if method == "densepure":
        chain, step = entry(schedule, grid, Query(sigma))
        root = np.sqrt(chain.alphas_bar[step])
        return Chain(root, root * 2 * sigma, *unguided_rest(chain, step))
    signal, variance, budget = 0.0, 1.0, 1 / (2 * sigma) ** 2
    step = len(grid) - 1
    while step > 0 and budget > 0:
        step_variance = np.exp((grid.log_variance_min[step] + grid.log_variance_max[step]) / 2)
        price = grid.coef_x0[step] ** 2 / step_variance
        used = min(SCALE, np.sqrt(budget / price))
        budget = budget - used**2 * price if used == SCALE else 0.0
        factor = grid.coef_x0[step] * (1 - used) * x0_slope(grid.alphas_bar[step]) + grid.coef_xt[step]
        signal = factor * signal + grid.coef_x0[step] * used
        variance = factor**2 * variance + step_variance
        step -= 1
    rest = unguided_rest(grid, step) if method == "adds" else (1.0, 0.0)
    return Chain(signal, np.sqrt(variance), *rest)


def certified_radius_of(successes, sigma):
    counts = [N - successes, successes]
    return certify(selection=counts, estimation=counts, sigma=sigma, alpha=ALPHA).radius


@pytest.fixture(scope="module")
def pipeline(schedule):
    return Pipeline(
        Denoiser(GaussianWorld(schedule, TAU), schedule, batch_size=N),
        BatchedClassifier(sign_of_first_coordinate, classes=2, batch_size=N),
        schedule.respaced(evenly_spaced(20, 1000)),
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_certificates_against_the_truth(schedule, pipeline, family):
    rng = np.random.default_rng(0)
    variants = FAMILIES[family]
    leader = variants[0]
    false_certificates, scores = dict.fromkeys(variants, 0), {variant: [] for variant in variants}
    for sigma in SIGMAS:
        chains = {variant: exact_chain(variant.method, sigma, schedule, pipeline.grid) for variant in variants}
        sampler = Sampler(leader.method, pipeline, sigma, leader.votes, guidance_scale=SCALE, chunk_size=N)
        radii, expected = ({variant: [] for variant in variants} for _ in range(2))
        for index, distance in enumerate(rng.uniform(0.05, min(sigma, 0.45), size=POINTS)):
            side = rng.choice([-1, 1])
            image = torch.full((1, 1, 2), 0.5)
            image[0, 0, 0] += side * distance
            picture, right = Picture.of(image, number=index), int(side > 0)
            selected = sampler.draw([Request(picture, "selection", 0, N0)])[0]
            estimated = sampler.draw([Request(picture, "estimation", 0, N)])[0]
            for variant, chain in chains.items():
                selection, estimation = (
                    np.bincount(predictions_of(variant, chunk)[0], minlength=2) for chunk in (selected, estimated)
                )
                found = certify(selection=selection, estimation=estimation, sigma=sigma, alpha=ALPHA)
                true_radius = distance if found.prediction == right else 0.0
                false_certificates[variant] += not found.abstained and found.radius > true_radius
                p = chain.probability_of_right_sign(2 * distance, variant.votes)
                scores[variant].append((estimation[right] - N * p) / np.sqrt(N * p * (1 - p)))
                radii[variant].append(found.radius)
                assert sigma * stats.norm.ppf(p) <= distance + 1e-9, "no exact radius may exceed the truth"
                expected[variant].append(certified_radius_of(round(N * p), sigma))
        for variant in variants:
            mean, exact = np.mean(radii[variant]), np.mean(expected[variant])
            assert mean == pytest.approx(exact, rel=0.2, abs=0.01), f"radii of {variant} far from exact ones"
    for variant in variants:
        found = np.array(scores[variant])
        assert false_certificates[variant] <= stats.binom.ppf(0.999, len(found), ALPHA)
        assert abs(found.mean()) * np.sqrt(len(found)) < 4, f"{variant}: probabilities are not the exact ones"
        assert np.abs(found).max() < 5
        assert stats.chi2.sf((found**2).sum(), len(found)) > 1e-4


def test_exact_radii_are_ordered_as_the_theory_says(schedule, pipeline):
    """RS and Carlini reach the true radius; whatever adds noise of its own stays below it."""
    for sigma in SIGMAS:
        radius = {
            (method, votes): sigma
            * stats.norm.ppf(exact_chain(method, sigma, schedule, pipeline.grid).probability_of_right_sign(0.4, votes))
            for variants in FAMILIES.values()
            for method, votes in variants
        }
        assert radius["rs", 1] == pytest.approx(0.2)
        assert radius["carlini", 1] == pytest.approx(0.2)
        assert radius["adds", 1] <= radius["adds", 5] + 1e-9 <= radius["adds_oneshot", 1] + 2e-9 <= 0.2 + 3e-9
        assert radius["densepure", 1] <= radius["densepure", 5] <= 0.2
