"""Exact coverage of the pair bound: how probable a false certificate can be, where all outcomes can be enumerated.

Run ``python -m studies.exact_coverage`` to print the exact tables of docs/coverage.md. Nothing is simulated.

Fixed mode sums over all outcomes. Only leads that some outcome certifies need be tried: for a given probability
q = Phi(u) of the most probable other class, the probability that at least so much is certified grows with the true
lead, so that it is worst just below such a lead. The smallest of them stands for images whose prediction isn't ahead.

Sequential mode follows the distribution of the counts from sample to sample, and takes out what is ruled out.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr

from adds.certificates.betting import GRID, log_evidence_of_lead, log_evidence_of_leads
from adds.certificates.pair import pair_lower

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

SAMPLES, ALPHAS, POINTS = (12, 20, 30, 50, 80), (0.2, 0.05, 0.01, 0.001), 161
FEW_SAMPLES = 50
"""Up to how many samples outcomes of four classes are enumerated."""
HORIZON, LEADS = 60, (0.0, GRID, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Rest:
    """What falls neither on A nor on the most probable other class: its least probability, and whose it is.

    ``rivals`` classes have the same probability; 0 stands for so many that none of them is ever the runner-up.
    """

    title: str
    least: float
    rivals: int


ANY = Rest("any rest", 0.0, 0)
MANY_RIVALS = Rest("rest of many classes", 0.1, 0)
ONE_RIVAL = Rest("of one class", 0.1, 1)
TWO_RIVALS = Rest("of two", 0.1, 2)
RESTS = (ANY, MANY_RIVALS, ONE_RIVAL, TWO_RIVALS)


@dataclass(frozen=True)
class Worst:
    """The largest probability of a false certificate, and the class probabilities of an image that has it."""

    probability: float
    lead: float
    classes: tuple[float, ...]


@cache
def certified_leads(n: int, alpha: float) -> Array:
    """Return the certified lead for every outcome ([a, b]); minus infinity where the bound abstains."""
    leads = np.full((n + 1, n + 1), -math.inf)
    for a in range(n + 1):
        for b in range(n - a + 1):
            found = pair_lower(a, b, n, alpha)
            leads[a, b] = -math.inf if found is None else found
    return leads


@cache
def outcomes(n: int, classes: int) -> Counts:
    """Return all ways in which n samples fall on so many classes ([ways, classes])."""
    if classes == 1:
        return np.array([[n]])
    ways = [np.insert(outcomes(n - first, classes - 1), 0, first, axis=1) for first in range(n + 1)]
    return np.concatenate(ways)


def images(lead: float, rest: Rest, points: int) -> Array:
    """Return class probabilities of images with that lead: A's, another class's, the rest's ([images, classes]).

    With rivals in the rest, either they or the other class may be the most probable.
    """
    u = -lead / 2 - 5 * np.linspace(0, 1, points) ** 2
    p, q = ndtr(u + lead), ndtr(u)
    left = np.maximum(1 - p - q, 0.0)
    if rest.rivals == 0:
        found = np.stack([p, q, left], axis=1)
    else:
        behind = np.stack([p, q, *[left / rest.rivals] * rest.rivals], axis=1)[left <= rest.rivals * q]
        other = 1 - p - rest.rivals * q
        ahead = np.stack([p, other, *[q] * rest.rivals], axis=1)[(other >= 0) & (other < q)]
        found = np.concatenate([behind, ahead])
    others = found[:, 1] if rest.rivals == 0 else found[:, 1:].max(axis=1)
    enough: Array = found[1 - found[:, 0] - others >= rest.least - 1e-9]
    return enough


def _probability(ways: Counts, classes: Array) -> Array:
    """Return the probability of all these outcomes together, at each image."""
    choices = gammaln(ways.sum(axis=1) + 1) - gammaln(ways + 1).sum(axis=1)
    return np.asarray(np.exp(np.log(np.maximum(classes, 1e-300)) @ ways.T + choices).sum(axis=1))


def worst_fixed(n: int, alpha: float, rest: Rest, *, points: int) -> Worst:
    """Return the worst case at fixed n, over all leads and ``points`` values of u for each."""
    ways = outcomes(n, 2 + max(rest.rivals, 1))
    runner_up = ways[:, 1] if rest.rivals == 0 else ways[:, 1:].max(axis=1)
    certified = certified_leads(n, alpha)[ways[:, 0], runner_up]
    worst = Worst(0.0, 0.0, ())
    for lead in np.unique(certified[certified >= 0]):
        classes = images(float(lead), rest, points)
        found = _probability(ways[certified >= lead], classes)
        if found.max(initial=0) > worst.probability:
            worst = Worst(float(found.max()), float(lead), tuple(classes[found.argmax()].tolist()))
    return worst


@cache
def evidence_of_counts(horizon: int, leads: tuple[float, ...]) -> Array:
    """Return the log evidence against leads of the grid, or the gate's for a lead of 0 ([leads, n, a, b])."""
    steps = [round(lead / GRID) for lead in leads]
    evidence = np.full((len(steps), *[horizon + 1] * 3), -math.inf)
    for n, a, b in np.ndindex(evidence.shape[1:]):
        if a + b <= n:
            evidence[:, n, a, b] = np.append(log_evidence_of_lead(a, b), log_evidence_of_leads(a, b, n))[steps]
    return evidence


def ever(ruled_out: NDArray[np.bool_], classes: Array) -> Array:
    """Return the probability that the counts ever are where they rule a lead out ([n, a, b]), looking at every n."""
    p, q, rest = classes.T[..., None, None]
    left = np.zeros((len(classes), *ruled_out.shape[1:]))
    left[:, 0, 0] = 1
    found = np.zeros(len(classes))
    for out in ruled_out[1:]:
        moved = left * rest
        moved[:, 1:] += left[:, :-1] * p
        moved[:, :, 1:] += left[:, :, :-1] * q
        found += (moved * out).sum(axis=(1, 2))
        left = np.where(out, 0.0, moved)
    return found


def worst_sequential(evidence: Array, alpha: float, rest: Rest, lead: float, *, points: int) -> Worst:
    """Return the worst case for the evidence against that lead ([n, a, b]) of ever reaching 1 / alpha.

    A certificate above the true lead needs the evidence against the first lead of the grid at or above the true one
    to have reached 1 / alpha. Images that have just that lead are the worst.
    """
    if rest.rivals == 1:
        n, a, b = np.indices(evidence.shape)
        evidence = evidence[n, a, np.maximum(b, n - a - b)]
    elif rest.rivals > 1:
        raise ValueError(f"rivals is {rest.rivals}: the counts of three classes are followed, not of more")
    classes = images(lead, rest, points)
    found = ever(evidence >= -math.log(alpha), classes)
    if not len(found):
        return Worst(0.0, lead, ())
    return Worst(float(found.max()), lead, tuple(classes[found.argmax()].tolist()))


def _header(first: str, rests: tuple[Rest, ...]) -> Iterator[str]:
    columns = [first, "alpha", *(rest.title for rest in rests), "worst at a lead of", "and probabilities"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"


def _row(first: str, alpha: float, cases: list[Worst | None]) -> str:
    worst = max((case for case in cases if case is not None), key=lambda case: case.probability)
    errors = ["" if case is None else f"{case.probability / alpha:.4f}" for case in cases]
    shares = ", ".join(f"{share:.3f}" for share in worst.classes)
    return f"| {' | '.join([first, f'{alpha:g}', *errors, f'{worst.lead:.3f}', shares])} |"


def fixed_lines() -> Iterator[str]:
    """Yield the Markdown table of fixed mode, a line as soon as it is known: worst errors as shares of alpha."""
    yield from _header("n", RESTS)
    for n in SAMPLES:
        for alpha in ALPHAS:
            known = RESTS if n <= FEW_SAMPLES else RESTS[:-1]
            cases = [worst_fixed(n, alpha, rest, points=POINTS) if rest in known else None for rest in RESTS]
            yield _row(str(n), alpha, cases)


def sequential_lines() -> Iterator[str]:
    """Yield the Markdown table of sequential mode, a line as soon as it is known: worst errors as shares of alpha."""
    rests = (ANY, MANY_RIVALS, ONE_RIVAL)
    yield from _header("lead ruled out", rests)
    for lead, evidence in zip(LEADS, evidence_of_counts(HORIZON, LEADS), strict=True):
        for alpha in ALPHAS:
            cases = [worst_sequential(evidence, alpha, rest, lead, points=POINTS) for rest in rests]
            yield _row(f"{lead:g}", alpha, [case if case.classes else None for case in cases])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for table in (fixed_lines, sequential_lines):
        for line in table():
            print(line, flush=True)
        print()
