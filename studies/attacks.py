"""Attack the smoothed classifiers themselves: `python -m studies.attacks`, half an hour of one core.

A certificate says that the smoothed classifier g(x) = argmax_c P(f(x, noise) = c) keeps its class A for every change d
with |d| < R. The attack looks for a d that breaks this: projected gradient steps in l2 on the expected loss over the
noise (EOT),

    L(d) = log E p_A(x + d, noise) - log E p_B(x + d, noise),      d <- project(d - step * v / |v|),
    v <- momentum * v + grad L / |grad L|,

where p are the classifier's probabilities, E is a mean over fresh noise at each step, and B is another class: the most
probable one of the moment for the first restart, a fixed runner-up for each of the others. Nothing keeps x + d in
[0, 1], because certificates hold outside as well.

The gradients are the library's own methods': a denoiser and a classifier that let gradients pass take the place of the
batched ones (`differentiable`). Two things are held constant in them, though never in the samples that judge an attack:
a step's standard deviation, and with it the scale that the privacy filter allows; and the network's answer at the
noisiest steps of the chain, through which the image's influence is weak and goes by the guidance alone.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from adds.certificates.binomial import clopper_pearson_lower, clopper_pearson_upper
from adds.certificates.certificate import certify
from adds.certificates.pair import gate_p_value
from adds.data.digits import FOR_CHOICES, load_split
from adds.data.images import Examples, Picture
from adds.diffusion.batching import Batches
from adds.diffusion.denoiser import Denoiser, Prediction
from adds.diffusion.noise import Noise
from adds.diffusion.schedule import Grid, to_model
from adds.methods.base import Query, purify, vote
from adds.methods.release import Subject, release
from adds.models.embedded import embedded_pipeline
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.registry import METHODS
from adds.results.figures.style import TEXT_WIDTH, line, look
from adds.sampling.sampler import Sampler

Counts = NDArray[np.int64]

ATTACKED = ("rs", "carlini", "adds_oneshot", "adds")
SIGMAS = (0.4, 0.6, 0.8)
ALPHA = 0.001
N0, N = 90, 990
"""Samples that certify."""
INSIDE = 0.95
BEYOND = (1.25, 1.5, 2.0, 2.5, 3.25, 4.5, 8.0)
"""Multiples of the certified radius."""
FARTHEST = 2.0
"""Where the largest multiple breaks nothing it is doubled, up to this radius."""
SCREENING, SCREENING_BEYOND, CONFIRMING = 180, 90, 450
"""Samples that look for a change of class after an attack, and fresh ones that confirm it."""
CERTIFYING_SEED, ATTACK_SEED, SCREENING_SEED, CONFIRMING_SEED = 0, 1, 2, 3
BARE_RADII = (0.25, 0.5, 0.75, 1.0)
STRIDE = 67
"""From one image to the next, modulo the 180 that results rest on: any number of them is spread over all."""
GRADIENTS_FROM = 7
"""The network passes gradients at this step of the grid and all less noisy ones."""


@dataclass(frozen=True)
class Effort:
    """How hard an attack tries: ``draws`` of noise in each of ``steps`` gradient steps, from ``restarts`` starts."""

    restarts: int
    steps: int
    draws: int
    momentum: float = 0.6
    step: float = 0.5


EFFORT = {
    "bare": Effort(restarts=4, steps=20, draws=1),
    "rs": Effort(restarts=4, steps=20, draws=64),
    "carlini": Effort(restarts=4, steps=20, draws=64),
    "adds_oneshot": Effort(restarts=4, steps=6, draws=32),
    "adds": Effort(restarts=4, steps=6, draws=32),
}
"""Chosen on digits that no result rests on."""
WARM_RESTARTS, WARM_STEPS = 2, 4
"""Beyond the certified radius the most successful attacks of another radius are carried on."""


# The smoothed classifiers, with gradients


class AnyImage(Subject):
    """Samples of an image that may leave [0, 1], and may need a gradient."""

    def __post_init__(self) -> None:
        """Check nothing."""


class Unbatched(Batches):
    """Applies a function to all rows at once, and lets gradients pass."""

    def apply(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Return the function's value."""
        return function(rows)


class GradientDenoiser(Denoiser):
    """A denoiser that passes gradients of x0 at steps up to ``gradients_from``, and none of the standard deviation."""

    gradients_from: int = GRADIENTS_FROM

    def predict(self, x_t: Tensor, grid: Grid, step: int) -> Prediction:
        """Predict as the denoiser does."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and step <= self.gradients_from):
            prediction = super().predict(x_t, grid, step)
        return replace(prediction, std=prediction.std.detach())


def differentiable(pipeline: Pipeline, gradients_from: int = GRADIENTS_FROM) -> Pipeline:
    """Return the same networks in a pipeline that gradients can pass."""
    plain, classes = pipeline.denoiser, pipeline.classifier.classes
    denoiser = GradientDenoiser(
        plain.network, plain.schedule, device=plain.device, rescale_timesteps=plain.rescale_timesteps
    )
    denoiser.batches, denoiser.gradients_from = Unbatched(1), gradients_from
    classifier = BatchedClassifier(pipeline.classifier.classifier, classes=classes)
    classifier.batches = Unbatched(1)
    return Pipeline(denoiser, classifier, pipeline.grid)


def logits(pipeline: Pipeline, name: str, query: Query, subject: Subject) -> Tensor:
    """Return the logits behind each sample's ballot ([n, classes]) of a method with one vote.

    "bare" stands for the classifier without smoothing.
    """
    if name == "bare":
        shown = to_model(subject.image)[None]
    else:
        purified = purify(name, pipeline, query, subject)
        released = release(pipeline.denoiser.schedule, subject, query.sigma)
        shown = released.y if purified is None else purified.images[purified.owner.argsort()]
    return pipeline.classifier.logits(shown)


@dataclass(frozen=True)
class Victim:
    """One method at one sigma and one image's noise: what is attacked.

    ``with_gradients`` passes gradients, ``library`` is the library's own pipeline, which certifies and judges.
    """

    name: str
    sigma: float
    number: int
    with_gradients: Pipeline
    library: Pipeline

    def logits(self, image: Tensor, samples: Tensor) -> Tensor:
        """Return the logits of samples with these numbers, of the attack's own noise."""
        noise = Noise(seed=ATTACK_SEED, stage="estimation", image=self.number, sigma=self.sigma)
        return logits(self.with_gradients, self.name, Query(self.sigma), AnyImage(image, samples, noise))

    def count(self, image: Tensor, *, seed: int, first: int, count: int) -> Counts:
        """Count the classes of samples, by the library's own code."""
        noise = Noise(seed=seed, stage="estimation", image=self.number, sigma=self.sigma)
        with torch.no_grad():
            subject = AnyImage(image, torch.arange(first, first + count), noise)
            ballots = vote(self.name, self.library, Query(self.sigma), subject)
        return np.bincount(ballots.classes[:, 0].numpy(), minlength=self.library.classifier.classes)


# The attack


def margin(found: Tensor, about: int, rival: int | None) -> Tensor:
    """Return log E p_A - log E p_B, for B the ``rival`` or the most probable other class."""
    mean = torch.logsumexp(torch.log_softmax(found, dim=1), dim=0)
    if rival is not None:
        return mean[about] - mean[rival]
    others = torch.arange(len(mean)) != about
    return mean[about] - mean[others].max()


def on_ball(change: Tensor, radius: float) -> Tensor:
    """Project a change on the ball of l2 changes of size ``radius``."""
    return change * min(1.0, radius / max(float(change.norm()), 1e-12))


def descend(
    logits_of: Callable[[Tensor, Tensor], Tensor],
    image: Tensor,
    change: Tensor,
    *,
    radius: float,
    about: int,
    rival: int | None,
    effort: Effort,
    first_sample: int,
) -> Tensor:
    """Return the change of size ``radius`` that projected gradient steps lead to from a first one."""
    velocity = torch.zeros_like(image)
    change = on_ball(change, radius)
    for taken in range(effort.steps):
        moving = change.clone().requires_grad_()
        start = first_sample + taken * effort.draws
        loss = margin(logits_of(image + moving, torch.arange(start, start + effort.draws)), about, rival)
        (gradient,) = torch.autograd.grad(loss, moving)
        velocity = effort.momentum * velocity + gradient / gradient.norm().clamp(min=1e-12)
        size = effort.step * radius * (1 - taken / effort.steps)
        change = on_ball(change - size * velocity / velocity.norm().clamp(min=1e-12), radius)
    return change * (radius * (1 - 1e-6) / max(float(change.norm()), 1e-12))


@dataclass(frozen=True)
class Attempt:
    """Where one restart ended, and the counts of the screening samples there."""

    change: Tensor
    counts: Counts
    rival: int | None

    def other(self, about: int) -> int:
        """Return the class that is most frequent beside ``about``."""
        return int(np.where(np.arange(len(self.counts)) == about, -1, self.counts).argmax())

    def lead(self, about: int) -> float:
        """Return by which share of the samples A leads."""
        return float(self.counts[about] - self.counts[self.other(about)]) / float(self.counts.sum())

    def suspicious(self, about: int) -> bool:
        """Tell whether another class may be ahead: it isn't two standard deviations behind."""
        a, b = int(self.counts[about]), int(self.counts[self.other(about)])
        return a - b < 2 * math.sqrt(a + b)


def confirmed(victim: Victim, image: Tensor, attempt: Attempt, about: int) -> tuple[Counts, float]:
    """Return fresh counts at an attempt's end and the p-value of "the other class isn't ahead of A".

    The other class was named by the screening samples, so that P(Binomial(a + b, 1/2) >= b) is a p-value.
    """
    counts = victim.count(image + attempt.change, seed=CONFIRMING_SEED, first=0, count=CONFIRMING)
    return counts, float(gate_p_value(counts[attempt.other(about)], counts[about]))


def attack(
    victim: Victim,
    image: Tensor,
    starts: Sequence[tuple[Tensor, int | None]],
    *,
    radius: float,
    about: int,
    effort: Effort,
    first_sample: int,
    screening: int,
) -> list[Attempt]:
    """Descend from each start (a change and a rival) and screen where that ends; the most successful come first."""
    attempts = []
    for change, rival in starts:
        found = descend(
            victim.logits,
            image,
            change,
            radius=radius,
            about=about,
            rival=rival,
            effort=effort,
            first_sample=first_sample,
        )
        counts = victim.count(image + found, seed=SCREENING_SEED, first=0, count=screening)
        attempts.append(Attempt(found, counts, rival))
    return sorted(attempts, key=lambda attempt: attempt.lead(about))


def first_starts(
    image: Tensor, counts: Counts, about: int, *, radius: float, restarts: int, carried: Sequence[Tensor]
) -> list[tuple[Tensor, int | None]]:
    """Return restarts: against any rival, then against the runners-up in turn.

    The first ones start from ``carried`` changes, the others from random ones, the same in every run.
    """
    generator = torch.Generator().manual_seed(ATTACK_SEED)
    order = [int(c) for c in np.argsort(-counts, kind="stable") if c != about]
    rivals = [None, *order][:restarts]
    starts: list[tuple[Tensor, int | None]] = []
    for place, rival in enumerate(rivals):
        random = torch.randn(image.shape, generator=generator)
        change = carried[place] if place < len(carried) else random / random.norm()
        starts.append((change * (0.5 * radius / max(float(change.norm()), 1e-12)), rival))
    return starts


# How much of what a guarantee allows an attack uses


def steepness(clean: tuple[int, int], attacked: tuple[int, int], *, distance: float, sigma: float) -> float:
    """Return sigma (Phi^-1(p) - Phi^-1(p')) / |d|, which the guarantee bounds by 1, from hits of trials at either."""
    before, after = (float(ndtri((hits + 0.5) / (trials + 1))) for hits, trials in (clean, attacked))
    return sigma * (before - after) / distance


def too_steep(clean: tuple[int, int], attacked: tuple[int, int], *, distance: float, sigma: float) -> bool:
    """Tell whether p fell more than the guarantee allows, for sure but for ALPHA."""
    before = float(ndtri(clopper_pearson_lower(*clean, ALPHA / 2)))
    after = float(ndtri(clopper_pearson_upper(*attacked, ALPHA / 2)))
    return sigma * (before - after) > distance


# One image


@dataclass(frozen=True)
class Known:
    """What certification says of an image: the class, its counts and its radii by both bounds."""

    about: int
    counts: Counts
    pair: float
    cohen: float

    @property
    def hits(self) -> tuple[int, int]:
        """Return how many of how many samples fell on the class."""
        return int(self.counts[self.about]), int(self.counts.sum())


def certified(victim: Victim, picture: Picture) -> Known:
    """Certify an image by the library."""
    sampler = Sampler(victim.name, victim.library, victim.sigma, seed=CERTIFYING_SEED, chunk_size=90)
    selection = sampler.count(picture, stage="selection", limit=N0).counts
    estimation = sampler.count(picture, stage="estimation", limit=N).counts
    radii = {}
    for bound in ("pair", "cohen"):
        found = certify(
            selection=selection.tolist(), estimation=estimation.tolist(), sigma=victim.sigma, alpha=ALPHA, bound=bound
        )
        radii[bound] = found.radius
    return Known(int(np.argmax(selection)), np.asarray(estimation, dtype=np.int64), radii["pair"], radii["cohen"])


def inside_row(victim: Victim, image: Tensor, known: Known, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Judge the attacks inside the certified radius."""
    radius, about = INSIDE * known.pair, known.about
    suspects = [attempt for attempt in attempts if attempt.suspicious(about)]
    values = [confirmed(victim, image, attempt, about)[1] for attempt in suspects]
    hits = [(int(attempt.counts[about]), SCREENING) for attempt in attempts]
    return {
        "attacks": len(attempts),
        "suspects": len(suspects),
        "changes": sum(value <= ALPHA for value in values),
        "least_lead": attempts[0].lead(about),
        "steepest": max(steepness(known.hits, hit, distance=radius, sigma=victim.sigma) for hit in hits),
        "too_steep": sum(too_steep(known.hits, hit, distance=radius, sigma=victim.sigma) for hit in hits),
    }


def broken_at(
    victim: Victim, image: Tensor, known: Known, attempts: Sequence[Attempt], multiple: float
) -> tuple[list[Attempt], dict[str, Any] | None]:
    """Carry attempts on at a multiple of the certified radius; return where they end, and how the class changed."""
    about, radius, effort = known.about, multiple * known.pair, replace(EFFORT[victim.name], steps=WARM_STEPS)
    found = attack(
        victim,
        image,
        [(attempt.change * (radius / attempt.change.norm()), None) for attempt in attempts[:WARM_RESTARTS]],
        radius=radius,
        about=about,
        effort=effort,
        first_sample=int(10_000 * multiple),
        screening=SCREENING_BEYOND,
    )
    if not found[0].suspicious(about):
        return found, None
    counts, value = confirmed(victim, image, found[0], about)
    if value > ALPHA:
        return found, None
    hit = int(counts[about]), CONFIRMING
    return found, {
        "broken": radius,
        "becomes": found[0].other(about),
        "p_value": value,
        "steepness": steepness(known.hits, hit, distance=radius, sigma=victim.sigma),
        "broken_too_steep": too_steep(known.hits, hit, distance=radius, sigma=victim.sigma),
    }


def beyond_row(victim: Victim, image: Tensor, known: Known, attempts: list[Attempt]) -> dict[str, Any]:
    """Find the smallest multiple of the certified radius at which an attack changes the class.

    By bisection among BEYOND; from there on by doubling.
    """
    row: dict[str, Any] = {"broken": np.nan}
    low, high = -1, len(BEYOND)
    while high - low > 1:
        middle = (low + high) // 2
        found, change = broken_at(victim, image, known, attempts, BEYOND[middle])
        if change is None:
            low, attempts = middle, found
        else:
            high, attempts, row = middle, found, row | change
    multiple = BEYOND[min(high, len(BEYOND) - 1)]
    while math.isnan(row["broken"]) and 2 * multiple * known.pair <= FARTHEST:
        multiple *= 2
        attempts, change = broken_at(victim, image, known, attempts, multiple)
        row |= change or {}
    return row | {"tried": multiple * known.pair}


def attacked(victim: Victim, picture: Picture, carried: Sequence[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
    """Certify an image and attack it; return the CSV's row, and the changes that the attack inside ended with."""
    started = time.perf_counter()
    image = torch.as_tensor(picture.pixels)
    known = certified(victim, picture)
    row: dict[str, Any] = {
        "number": picture.number,
        "label": picture.label,
        "method": victim.name,
        "sigma": victim.sigma,
        "prediction": known.about,
        "cohen": known.cohen,
        "pair": known.pair,
        "attacks": 0,
    }
    changes: list[Tensor] = []
    if known.pair > 0:
        radius, effort = INSIDE * known.pair, EFFORT[victim.name]
        starts = first_starts(
            image, known.counts, known.about, radius=radius, restarts=effort.restarts, carried=carried
        )
        attempts = attack(
            victim, image, starts, radius=radius, about=known.about, effort=effort, first_sample=0, screening=SCREENING
        )
        changes = [attempt.change for attempt in attempts]
        row |= inside_row(victim, image, known, attempts)
        row |= beyond_row(victim, image, known, attempts)
    return row | {"seconds": time.perf_counter() - started}, changes


COLUMNS = [
    *("number", "label", "method", "sigma", "prediction", "cohen", "pair"),
    *("attacks", "suspects", "changes", "least_lead", "steepest", "too_steep"),
    *("broken", "tried", "becomes", "p_value", "steepness", "broken_too_steep", "seconds"),
]
"""What is known of the image; of attacks inside; of those beyond (``tried`` is the largest radius if none broke)."""


def spread(digits: Examples, count: int) -> list[Picture]:
    """Return ``count`` of the test digits that results rest on, spread over them."""
    reported = len(digits) - FOR_CHOICES
    return [pictured(digits, FOR_CHOICES + place * STRIDE % reported) for place in range(count)]


def pictured(digits: Examples, index: int) -> Picture:
    """Return one digit with its number and label."""
    return Picture.of(digits.images[index], int(digits.numbers[index]), int(digits.labels[index]))


def run(pictures: Sequence[Picture], file: Path, *, guided: int) -> None:
    """Attack every image at every sigma, and append a row for each method; those on file are left out.

    Guided methods cost twenty times as much as the others: only the first ``guided`` images are attacked in them.
    """
    library = embedded_pipeline()
    with_gradients = differentiable(library)
    done = set()
    if file.exists():
        on_file = pd.read_csv(file)
        done = set(zip(on_file["number"], on_file["sigma"], strict=True))
    for place, picture in enumerate(pictures):
        names = [name for name in ATTACKED if place < guided or not METHODS[name].guided]
        for sigma in SIGMAS:
            if (picture.number, sigma) in done:
                continue
            rows, carried = [], list[Tensor]()
            for name in names:
                victim = Victim(name, sigma, picture.number, with_gradients, library)
                # The best changes of the denoised methods before are where half of the attacks on guided ones start.
                row, changes = attacked(victim, picture, carried[:2] if METHODS[name].guided else ())
                rows.append(row)
                carried = changes[:1] + carried[:1] if METHODS[name].guided else changes
                print(" ".join(f"{key}={_short(value)}" for key, value in row.items()), flush=True)
            table = pd.DataFrame(rows, columns=COLUMNS)
            table.to_csv(file, mode="a", header=not file.exists(), index=False, float_format="%.5g")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# Without smoothing


def bare_broken(digits: Examples, indices: Sequence[int], radius: float, steps: int) -> int:
    """Count the images whose class the same attack changes at a radius where nothing is smoothed."""
    library = embedded_pipeline()
    with_gradients, effort, broken = differentiable(library), replace(EFFORT["bare"], steps=steps), 0
    for index in indices:
        image = torch.as_tensor(digits.images[index])
        victim = Victim("bare", 1.0, 0, with_gradients, library)
        clean = victim.logits(image, torch.arange(1))[0]
        about = int(clean.argmax())
        starts = first_starts(
            image, (1000 * clean).long().numpy(), about, radius=radius, restarts=effort.restarts, carried=()
        )
        for change, rival in starts:
            found = descend(
                victim.logits,
                image,
                change,
                radius=radius,
                about=about,
                rival=rival,
                effort=effort,
                first_sample=0,
            )
            if int(victim.logits(image + found, torch.arange(1)).argmax()) != about:
                broken += 1
                break
    return broken


# Table and figure


def table_lines(found: pd.DataFrame) -> Iterator[str]:
    """Yield the Markdown table, with medians over certified images; a radius is infinite where nothing broke one."""
    yield (
        "| method | sigma | certified | attacks inside | changes inside | broken beyond | certified radius "
        "| broken radius | ratio | steepness |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name in ATTACKED:
        for sigma, group in found[found["method"] == name].groupby("sigma"):
            part = group[group["pair"] > 0]
            broken = part["broken"].fillna(np.inf)
            yield (
                f"| {METHODS[name].title} | {sigma} | {len(part)} of {len(group)} | {part['attacks'].sum():.0f} "
                f"| {part['changes'].sum():.0f} | {part['broken'].notna().sum()} | {part['pair'].median():.2f} "
                f"| {broken.median():.2f} | {(broken / part['pair']).median():.2f} | {part['steepness'].median():.2f} |"
            )


def sums(found: pd.DataFrame) -> Iterator[str]:
    """Yield what the text quotes."""
    part = found[found["pair"] > 0]
    ratio = part["broken"] / part["pair"]
    steep = part["steepness"].dropna()
    yield f"{found['number'].nunique()} images, {len(part)} certificates, {found['seconds'].sum() / 60:.0f} minutes"
    yield (
        f"inside: {part['attacks'].sum():.0f} attacks, {part['suspects'].sum():.0f} looked at again, "
        f"{part['changes'].sum():.0f} changes, {part['too_steep'].sum():.0f} too steep"
    )
    yield f"beyond: {ratio.notna().sum()} broken, {part['broken_too_steep'].eq(True).sum()} too steep"
    for multiple in BEYOND:
        yield f"broken at {multiple} of the certified radius or less: {(ratio <= multiple + 1e-3).sum()}"
    yield f"steepness: median {steep.median():.2f}, above 1/2 in {(steep > 0.5).sum()}, largest {steep.max():.2f}"


def draw(found: pd.DataFrame) -> Figure:
    """Draw the broken radius against the certified one, a panel per sigma; hollow where nothing broke the image."""
    import matplotlib.pyplot as plt

    sigmas = sorted(found["sigma"].unique())
    figure, axes = plt.subplots(1, len(sigmas), figsize=(TEXT_WIDTH, 2.9), sharex=True, sharey=True, squeeze=False)
    part = found[found["pair"] > 0]
    low, bottom = 0.8 * float(part["pair"].min()), 0.4 * float(part["tried"].min())
    high = 1.25 * float(part[["broken", "tried"]].max().max())
    marks = dict(zip(ATTACKED, "sDo^", strict=True))
    for axis, sigma in zip(axes[0], sigmas, strict=True):
        ends = np.array([low, high])
        axis.plot(ends, ends, color=".15", linewidth=1)
        axis.fill_between(ends, low, ends, color=".93", linewidth=0)
        for multiple in (2, 4):
            axis.plot(ends, multiple * ends, color=".7", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
            axis.text(1.3 * bottom / multiple, 1.1 * bottom, f"{multiple}x", color=".45", fontsize=7)
        axis.text(0.97, 0.05, "certified", color=".45", fontsize=7, ha="right", transform=axis.transAxes)
        for name in ATTACKED:
            rows = part[(part["method"] == name) & (part["sigma"] == sigma)]
            colour = line(name, 1).colour
            hit, missed = rows[rows["broken"].notna()], rows[rows["broken"].isna()]
            style = {"s": 22, "alpha": 0.75, "linewidths": 0.8, "marker": marks[name]}
            axis.scatter(hit["pair"], hit["broken"], color=colour, **style)
            axis.scatter(missed["pair"], missed["tried"], facecolors="none", edgecolors=colour, **style)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlim(low, 1.3 * float(part["pair"].max()))
        axis.set_ylim(bottom, high)
        axis.set_title(f"$\\sigma$ = {sigma:g}")
        axis.set_xlabel("Certified $\\ell_2$ radius")
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter("{x:g}")
            scale.set_minor_formatter("")
    axes[0, 0].set_ylabel("Broken $\\ell_2$ radius")
    handles = [
        Line2D([], [], marker=marks[name], linestyle="", color=line(name, 1).colour, label=METHODS[name].title)
        for name in ATTACKED
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1, handletextpad=0.2)
    return figure


def main() -> None:
    """Attack, draw the figure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--guided", type=int, default=6, help="how many of these are attacked in guided methods too")
    parser.add_argument("--output", type=Path, default=Path("docs/attacks.csv"))
    parser.add_argument("--figure", type=Path, default=Path("docs/gallery/attacks.png"))
    parser.add_argument("--only-report", action="store_true", help="print what is on file")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    _, test = load_split()
    if not chosen.only_report:
        run(spread(test, chosen.images), chosen.output, guided=chosen.guided)
        with look({"font_size": 9, "dpi": 150}):
            draw(pd.read_csv(chosen.output)).savefig(chosen.figure, metadata={"Software": None})
    found = pd.read_csv(chosen.output)
    for text in (*table_lines(found), *sums(found)):
        print(text)
    reported = range(FOR_CHOICES, len(test))
    for steps in sorted({effort.steps for effort in EFFORT.values()}):
        for radius in BARE_RADII:
            broken = bare_broken(test, reported, radius, steps)
            print(f"without smoothing, {steps} steps, radius {radius}: {broken} of {len(reported)} broken", flush=True)


if __name__ == "__main__":
    main()
