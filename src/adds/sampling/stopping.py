"""When enough samples have been drawn: at a fixed number, or as soon as every question is answered.

Sequential sampling looks at the counts after every chunk. Certificates rest on evidence that holds at all times at
once, so no rule of stopping, these or any other, can make one false. When to give up is another matter: nothing rests
on it, and a prediction is enough.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from scipy.special import bdtrc, ndtr, ndtri

from adds.certificates.betting import log_evidence_of_lead
from adds.certificates.binomial import log_evidence_above
from adds.certificates.bounds import Counts, bound_function, runner_up
from adds.certificates.label import label_has_majority

Rule = Callable[[Counts], str | None]
"""Looks at the counts so far and says why to stop, or None to go on."""

Answer = Literal["answered", "ruled out", "futile"]
"""It is known; the evidence excludes a certificate; a prediction says that there will hardly be one."""

SELECTION_STEP, SELECTION_LEAD = 8, 7
"""Selection looks after every so many samples, and ends when the first class is so many ahead of the second.

Of the rules that were tried this takes the fewest samples and loses less than one certificate in 200
(`python -m studies.selection_rule`; docs/statistics.md has the table).
"""

LABEL_LEVEL, LABEL_MOST = 0.01, 1000
"""The label is known to be the top class, or not, where it differs from its best rival at this nominal level; at most
so many samples are spent on that."""


@lru_cache
def _quantile_of_evidence(n: int, alpha: float) -> float:
    """Return how many standard deviations above a tie n samples must be, for evidence of 1 / alpha."""
    enough = np.flatnonzero(log_evidence_above(0.5, np.arange(n + 1), n) >= -math.log(alpha))
    least = enough[enough > n / 2]
    return float((2 * least[0] - n) / math.sqrt(n)) if len(least) else math.inf


@dataclass(frozen=True)
class Lead:
    """An estimate of delta from n samples, and the variance of one sample's contribution (delta method)."""

    delta: float
    variance: float

    @classmethod
    def over_half(cls, top: int, n: int) -> "Lead":
        """Return the lead over all other classes together: delta = 2 Phi^-1(p)."""
        p = (top + 0.5) / (n + 1)
        return cls(float(2 * ndtri(p)), 4 * p * (1 - p) / _density(p) ** 2)

    @classmethod
    def over_runner_up(cls, top: int, other: int, n: int) -> "Lead":
        """Return the lead over the runner-up: delta = Phi^-1(p) - Phi^-1(q)."""
        p, q = (top + 0.5) / (n + 1.5), (other + 0.5) / (n + 1.5)
        of_p, of_q = _density(p), _density(q)
        variance = p * (1 - p) / of_p**2 + q * (1 - q) / of_q**2 + 2 * p * q / (of_p * of_q)
        return cls(float(ndtri(p) - ndtri(q)), variance)

    def chance(self, delta: float, *, n: int, most: int, quantile: float) -> float:
        """Predict the probability that a test of ``most`` samples will show a lead above ``delta``.

        With a flat prior the estimate at the end is normal around the present one, with variance V (1 / n - 1 / N);
        the test asks for ``quantile`` of its standard deviations, sqrt(V / N).
        """
        needed = delta + quantile * math.sqrt(self.variance / most)
        return float(ndtr((self.delta - needed) / math.sqrt(self.variance * (1 / n - 1 / most))))


def _density(p: float) -> float:
    return math.exp(-0.5 * float(ndtri(p)) ** 2) / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Look:
    """What a look shows: the counts so far, and which class is in question.

    ``most`` is the most samples that will be drawn, ``futility`` the chance of a certificate below which to give up.
    """

    counts: Counts
    about: int
    sigma: float
    alpha: float
    most: int
    futility: float

    @cached_property
    def n(self) -> int:
        """How many samples there are."""
        return int(self.counts.sum())

    @cached_property
    def top(self) -> int:
        """How many fell on the class in question."""
        return int(self.counts[self.about])

    @cached_property
    def other(self) -> int:
        """How many fell on the best of the others."""
        return int(runner_up(self.counts, self.about))

    def is_hopeless(self, lead: Lead, delta: float, quantile: float) -> bool:
        """Tell whether more samples would hardly show a lead above ``delta``."""
        return self.n < self.most and lead.chance(delta, n=self.n, most=self.most, quantile=quantile) < self.futility


class Question(Protocol):
    """Something that sampling is to find out about one class, the selected one or the label."""

    def answer(self, look: Look) -> Answer | None:
        """Answer from the samples so far; None to go on."""


@dataclass(frozen=True)
class Certified:
    """Whether the image is certified at ``radius`` by ``bound``."""

    bound: str
    radius: float

    def answer(self, look: Look) -> Answer | None:
        """Answer by evidence at alpha that it is, by the prediction, or by evidence at alpha that it can't be."""
        delta = 2 * self.radius / look.sigma
        if self._is_shown(look, delta):
            return "answered"
        if self.bound == "cohen":
            lead = Lead.over_half(look.top, look.n)
            against = log_evidence_above(ndtr(-delta / 2), look.n - look.top, look.n)
        else:
            lead = Lead.over_runner_up(look.top, look.other, look.n)
            against = log_evidence_of_lead(look.other, look.top)
        if look.is_hopeless(lead, delta, _quantile_of_evidence(look.most, look.alpha)):
            return "futile"
        return "ruled out" if against >= -math.log(look.alpha) else None

    def _is_shown(self, look: Look, delta: float) -> bool:
        """Tell whether the bound certifies the radius; where evidence alone says so, without finding the largest."""
        if self.bound == "cohen":
            return bool(log_evidence_above(ndtr(delta / 2), look.top, look.n) >= -math.log(look.alpha))
        if self.bound == "pair" and delta == 0:
            return bool(log_evidence_of_lead(look.top, look.other) >= -math.log(look.alpha))
        certify = bound_function(self.bound)
        verdict = certify(look.counts, look.about, sigma=look.sigma, alpha=look.alpha, mode="sequential")
        return not verdict.abstained and verdict.radius >= self.radius


@dataclass(frozen=True)
class LabelHasMajority:
    """Whether p_label > 1/2: the paper's Table 1, for a class that needs no selection (`adds.certificates.label`)."""

    def answer(self, look: Look) -> Answer | None:
        """Answer by evidence, or give up; at the cap the certificate has a test of its own."""
        if label_has_majority(look.top, look.n, look.alpha, at_fixed_cap=False):
            return "answered"
        quantile = float(ndtri(1 - look.alpha / 2))
        return "futile" if look.is_hopeless(Lead.over_half(look.top, look.n), 0.0, quantile) else None


@dataclass(frozen=True)
class LabelIsTop:
    """Whether the label is the most probable class: the paper's Table 2, an estimate and not a test.

    If several classes are tied with the label, it is more often found behind one of them than ahead of all.
    """

    def answer(self, look: Look) -> Answer | None:
        """Answer when the label and its best rival differ at a nominal level, or after enough samples."""
        ahead, both = max(look.top, look.other), look.top + look.other
        by_chance = 2 * float(bdtrc(ahead - 1, both, 0.5)) if both else 1.0
        return "answered" if by_chance <= LABEL_LEVEL or look.n >= min(LABEL_MOST, look.most) else None


LABEL_QUESTIONS: Mapping[str, Question] = {"majority": LabelHasMajority(), "top": LabelIsTop()}


def question_of(settings: Mapping[str, Any]) -> Question:
    """Build a question from the configuration: {bound, radius}, or {label: majority} or {label: top}."""
    if "label" in settings:
        return LABEL_QUESTIONS[settings["label"]]
    return Certified(settings["bound"], settings["radius"])


@dataclass(frozen=True)
class Stop:
    """What sequential sampling waits for: an answer to every question, from ``at_least`` estimation samples on.

    ``futility``: give up on a certificate when ``most`` samples would give it with a smaller probability than this.
    """

    questions: Sequence[Question]
    at_least: int = 0
    futility: float = 0.01

    @property
    def asks_label(self) -> bool:
        """Whether questions are about the label, which needs no selection."""
        return any(question in LABEL_QUESTIONS.values() for question in self.questions)

    def reason(self, counts: Counts, about: int, *, sigma: float, alpha: float, most: int) -> str | None:
        """Say why to stop, or None: 'answered', or the weakest answer where one is a no."""
        look = Look(counts, about, sigma, alpha, most, self.futility)
        if look.n < self.at_least:
            return None
        answers = set()
        for question in self.questions:
            found = question.answer(look)
            if found is None:
                return None
            answers.add(found)
        return next((answer for answer in ("futile", "ruled out") if answer in answers), "answered")


@dataclass(frozen=True)
class SampleSize:
    """How many samples select the class (n0) and estimate its probability (n): exactly, or at most."""

    n0: int
    n: int
    alpha: float = 0.001
    stop: Stop | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "SampleSize":
        """Build it from the ``sampling`` section of the configuration."""
        if settings["mode"] == "fixed":
            return cls(settings["n0"], settings["n"])
        stop = settings["stop"]
        questions = tuple(question_of(question) for question in stop["questions"])
        return cls(
            settings["n0"], settings["n"], settings["alpha"], Stop(questions, stop["at_least"], stop["futility"])
        )

    @property
    def asks_label(self) -> bool:
        """Whether the label is the class in question, so that none has to be selected."""
        return self.stop is not None and self.stop.asks_label

    def selection_look(self, chunk: int) -> int:
        """Return after how many selection samples to look, where estimation looks after every ``chunk``."""
        return chunk if self.stop is None else min(chunk, SELECTION_STEP)

    def in_any_case(self, chunk: int) -> int:
        """Return how many estimation samples every image gets, whatever they show, with a look after every ``chunk``.

        All n where sampling doesn't stop, else those up to the first look from ``at_least`` on.
        """
        if self.stop is None:
            return self.n
        return min(self.n, -(-max(self.stop.at_least, 1) // chunk) * chunk)

    def selection_rule(self) -> Rule:
        """Select with n0 samples; in sequential mode stop earlier when one class leads.

        Any rule is sound here: the estimation samples are independent of what it looks at.
        """

        def rule(counts: Counts) -> str | None:
            if counts.sum() >= self.n0:
                return "fixed" if self.stop is None else "cap"
            second, first = (int(count) for count in np.sort(counts)[-2:])
            return "answered" if self.stop is not None and first - second >= SELECTION_LEAD else None

        return rule

    def estimation_rule(self, about: int, sigma: float) -> Rule:
        """Estimate with n samples; in sequential mode stop earlier when `Stop` says so."""

        def rule(counts: Counts) -> str | None:
            if self.stop is not None:
                reason = self.stop.reason(counts, about, sigma=sigma, alpha=self.alpha, most=self.n)
                if reason is not None:
                    return reason
            if counts.sum() >= self.n:
                return "fixed" if self.stop is None else "cap"
            return None

        return rule
