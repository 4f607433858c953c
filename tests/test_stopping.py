import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom

from adds.certificates.certificate import certify
from adds.certificates.label import label_has_majority
from adds.sampling.stopping import (
    LABEL_QUESTIONS,
    Certified,
    LabelHasMajority,
    LabelIsTop,
    Lead,
    SampleSize,
    Stop,
)

SIGMA, ALPHA, MOST = 0.5, 0.001, 10_000


def counts(*values):
    return np.array(values, dtype=np.int64)


def reason(questions, *values, futility=0.0, at_least=0):
    stop = Stop(questions, at_least=at_least, futility=futility)
    return stop.reason(counts(*values), 0, sigma=SIGMA, alpha=ALPHA, most=MOST)


def ask(bound, radius=0.0):
    return [Certified(bound, radius)]


@pytest.mark.parametrize("bound", ["cohen", "pair"])
def test_stops_as_soon_as_radius_zero_is_answered(bound):
    assert reason(ask(bound), 8, 0, 0) is None
    assert reason(ask(bound), 32, 0, 0) == "answered"


@pytest.mark.parametrize("bound", ["cohen", "pair"])
@pytest.mark.parametrize("radius", [0.0, 0.1, 0.3])
def test_what_the_rule_calls_answered_the_certificate_confirms(bound, radius):
    rng = np.random.default_rng(0)
    answered = 0
    for _ in range(60):
        drawn = rng.multinomial(400, [0.8, 0.1, 0.1])
        if reason(ask(bound, radius), *drawn) == "answered":
            answered += 1
            found = certify(
                selection=[1, 0, 0], estimation=drawn, sigma=SIGMA, alpha=ALPHA, mode="sequential", bound=bound
            )
            assert not found.abstained
            assert found.radius >= radius
    assert answered


def test_evidence_rules_a_certificate_out():
    assert reason(ask("cohen"), 60, 240, 0) == "ruled out"
    assert reason(ask("pair"), 60, 240, 0) == "ruled out"
    assert reason(ask("cohen"), 130, 50, 50, 70) is None
    assert reason(ask("cohen", 0.6), 160, 140) == "ruled out", "p is surely below what 0.6 needs"


def test_a_prediction_gives_up_earlier_than_the_evidence():
    assert reason(ask("pair"), 40, 64, 0) is None
    assert reason(ask("pair"), 40, 64, 0, futility=0.01) == "futile"
    assert reason(ask("pair"), 52, 52, 0, futility=0.01) is None, "a tie may still be broken"
    assert reason(ask("cohen"), 400, 300, 300, futility=0.01) == "futile"
    assert reason(ask("pair"), 400, 300, 300, futility=0.01) in (None, "answered")


@pytest.mark.parametrize(("p", "n"), [(0.5, 64), (0.515, 256), (0.53, 1024), (0.48, 128)])
def test_the_prediction_is_about_right(p, n):
    """Beta-binomial draws of what is left, against the normal formula."""
    rng, top = np.random.default_rng(1), round(p * n)
    posterior = rng.beta(top + 0.5, n - top + 0.5, size=20_000)
    finally_top = top + rng.binomial(MOST - n, posterior)
    passes = (finally_top - MOST / 2) / np.sqrt(MOST) * 2 >= 3.1
    found = Lead.over_half(top, n).chance(0.0, n=n, most=MOST, quantile=3.1)
    assert found == pytest.approx(passes.mean(), abs=0.02)


def test_pair_answers_where_cohen_cannot():
    assert reason(ask("pair"), 180, *[20] * 11) == "answered"
    assert reason(ask("cohen"), 180, *[20] * 11) is None


def test_every_question_must_be_answered():
    both = [*ask("cohen", 0.0), *ask("cohen", 0.3)]
    assert reason(both, 75, 25) is None
    assert reason(both, 950, 50) == "answered"
    assert reason(both, 6000, 4000) == "ruled out", "0 is certified and 0.3 is out of reach"
    different = [*ask("pair"), *ask("cohen")]
    assert reason(ask("pair"), 300, 150, 150) == "answered"
    assert reason(different, 300, 150, 150) is None, "a near-tie with one half"


def test_at_least():
    assert reason(ask("pair"), 99, 0, at_least=100) is None
    assert reason(ask("pair"), 100, 0, at_least=100) == "answered"


def test_cap():
    rule = SampleSize(n0=10, n=100, alpha=ALPHA, stop=Stop(ask("pair"))).estimation_rule(0, SIGMA)
    assert rule(counts(44, 16)) is None
    assert rule(counts(60, 40)) == "cap"


def test_selection_stops_when_a_class_leads():
    size = SampleSize(n0=1000, n=100, alpha=ALPHA, stop=Stop(ask("pair")))
    rule = size.selection_rule()
    assert rule(counts(8, 2, 0)) is None
    assert rule(counts(9, 2, 0)) == "answered"
    assert rule(counts(500, 500, 0)) == "cap"
    assert (size.selection_look(32), size.selection_look(4)) == (8, 4)
    fixed = SampleSize(n0=1000, n=100)
    assert fixed.selection_rule()(counts(999, 0, 0)) is None
    assert fixed.selection_rule()(counts(1000, 0, 0)) == "fixed"
    assert fixed.selection_look(32) == 32


def test_the_label_s_majority():
    question = [LabelHasMajority()]
    assert reason(question, 16, 0) == "answered"
    assert reason(question, 11, 5) is None
    assert reason(question, 5, 27, futility=0.01) == "futile"
    assert reason(question, 5_060, 4_940, futility=0.01) is None, "at the cap the certificate's own test decides"


def test_the_label_as_top_class():
    question = [LabelIsTop()]
    assert reason(question, 5, 4, 3) is None
    assert reason(question, 13, 2, 2) == "answered"
    assert reason(question, 2, 13, 2) == "answered", "that it is not is an answer too"
    assert reason(question, 300, 300, 300) is None
    assert reason(question, 334, 333, 333) == "answered", "1,000 samples are enough for an estimate"
    assert reason(question, 0, 0, 1) is None


def test_the_label_needs_the_evidence_or_the_cap_fixed_beforehand():
    """5,165 of 10,000 pass Clopper and Pearson's test at alpha / 2, and the evidence is far from it."""
    assert label_has_majority(5_170, 10_000, ALPHA, at_fixed_cap=True)
    assert not label_has_majority(5_170, 10_000, ALPHA, at_fixed_cap=False)
    assert not label_has_majority(5_155, 10_000, ALPHA, at_fixed_cap=True)
    assert label_has_majority(5_300, 10_000, ALPHA, at_fixed_cap=False)
    assert not label_has_majority(0, 0, ALPHA, at_fixed_cap=True)


def test_each_half_of_the_labels_proof_has_half_of_alpha():
    """The first counts that prove it: those of Clopper and Pearson's bound, and of the evidence, at alpha / 2."""
    capped = [label_has_majority(k, 10_000, ALPHA, at_fixed_cap=True) for k in range(5_150, 5_180)]
    assert 5_150 + capped.index(True) == int(binom.isf(ALPHA / 2, 10_000, 0.5)) + 1 == 5_166
    evidence = [label_has_majority(k, 10_000, ALPHA, at_fixed_cap=False) for k in range(5_220, 5_260)]
    first = 5_220 + evidence.index(True)

    def evidence_of(k):
        """The mixture's likelihood ratio, from its definition."""
        ratio = quad(lambda p: np.exp(k * np.log(2 * p) + (10_000 - k) * np.log(2 - 2 * p)), 0.5, 0.6)
        return 2 * ratio[0]

    assert evidence_of(first - 1) < 2 / ALPHA <= evidence_of(first)


def ever_certified(p, cap, alpha, looks, *, raised):
    """The exact probability that the label is certified by a look, or by the test at a cap, at p_label = p."""
    caps = {cap} if not raised else set(looks)
    alive, certified = np.array([1.0]), 0.0
    step = np.array([1 - p, p])
    for n in range(1, cap + 1):
        alive = np.convolve(alive, step)
        if n in looks:
            hit = np.array([label_has_majority(k, n, alpha, at_fixed_cap=n in caps) for k in range(n + 1)])
            certified += alive[hit].sum()
            alive = np.where(hit, 0.0, alive)
    return certified


def test_the_label_s_question_has_the_level_that_it_claims():
    """Exactly, at the worst case p = 1/2; and a cap that moves with the data would not have it."""
    looks = range(32, 513, 32)
    assert ever_certified(0.5, 512, 0.02, looks, raised=False) <= 0.02
    assert ever_certified(0.5, 512, 0.02, looks, raised=True) > 0.02, "testing at every cap in turn"


def test_from_settings():
    stop = {"questions": [{"bound": "cohen", "radius": 0.5}], "at_least": 3, "futility": 0.02}
    size = SampleSize.from_settings({"mode": "sequential", "n0": 5, "n": 7, "alpha": 0.01, "stop": stop})
    assert size == SampleSize(5, 7, 0.01, Stop((Certified("cohen", 0.5),), 3, 0.02))
    assert not size.asks_label
    stop = {**stop, "questions": [{"label": "majority"}, {"label": "top"}]}
    size = SampleSize.from_settings({"mode": "sequential", "n0": 5, "n": 7, "alpha": 0.01, "stop": stop})
    assert size.asks_label
    assert size.stop.questions == tuple(LABEL_QUESTIONS.values())
    assert SampleSize.from_settings({"mode": "fixed", "n0": 5, "n": 7, "alpha": 0.01}).stop is None
