"""Tests behind verdicts: each must hold, be contradicted and stay undecided where it should."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.stats import binom

from adds.certificates.certificate import certify
from adds.registry import OPTIONS, Variant, title
from adds.results.certified import certificates
from adds.results.claims.claim import Part, contrasts, read_claims
from adds.results.claims.measures import UNITS, Measured, changes_by_voting, confirmed, measure
from adds.results.claims.paired import (
    above,
    above_zero,
    flips,
    holm,
    mcnemar,
    never,
    of_means,
    of_shares,
    score,
    share_interval,
)
from adds.results.claims.published import for_all_pairings, markdown, on_paper
from adds.results.claims.show import write_claims
from adds.results.claims.verdict import ONE_OF, Printed, Row, claim_verdict, counted, evaluate, find, with_verdicts
from adds.results.page import body_of

PROJECT = Path(__file__).parents[1]
CLAIMS = read_claims(PROJECT / "config/claims.yaml")
PUBLISHED = Printed(pd.read_csv(PROJECT / "config/paper_tables.csv"))
SETTINGS = {
    "carlini": Variant("carlini", 1),
    "densepure": Variant("densepure", 1),
    "densepure5": Variant("densepure", 5),
    "adds": Variant("adds", 1),
    "adds5": Variant("adds", 5),
    "adds_oneshot": Variant("adds_oneshot", 1),
}
MARGIN = 0.05


def pairs(more, fewer, images):
    """Two yes-or-no columns that differ in so many images, either way."""
    first, second = np.zeros(images, bool), np.zeros(images, bool)
    first[:more], second[more : more + fewer] = True, True
    return first, second


# The tests themselves


def test_mcnemars_test_is_the_exact_binomial_one():
    assert mcnemar(9, 2) == pytest.approx(stats.binomtest(9, 11, alternative="greater").pvalue)
    assert mcnemar(0, 5) == 1
    assert mcnemar(0, 0) == 1


def test_the_score_statistic_is_mcnemars_at_no_difference():
    assert score(np.array(9), np.array(2), 50, 0.0) == pytest.approx(7 / np.sqrt(11))
    assert score(np.array(9), np.array(2), 50, 0.1) == pytest.approx(-score(np.array(2), np.array(9), 50, -0.1))
    for end in share_interval(9, 2, 50):
        assert abs(score(np.array(9), np.array(2), 50, end)) == pytest.approx(1.96, abs=1e-3)


@pytest.mark.parametrize(("more", "fewer", "difference"), [(9, 2, 0.05), (2, 9, 0.05), (0, 4, 0.1), (5, 5, -0.05)])
def test_the_score_statistic_rests_on_the_likeliest_shares(more, fewer, difference):
    """The likelihood of b, c and n - b - c is searched on a grid of q, with p = q + D."""
    n = 50
    q = np.linspace(max(0, -difference), (1 - difference) / 2, 200_001)[1:-1]
    log = more * np.log(q + difference) + fewer * np.log(q) + (n - more - fewer) * np.log(1 - 2 * q - difference)
    best = q[log.argmax()]
    variance = n * (2 * best + difference - difference**2)
    expected = (more - fewer - n * difference) / np.sqrt(variance)
    assert score(np.array(more), np.array(fewer), n, difference) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("images", "margin"), [(24, -0.05), (24, 0.05), (40, -0.1)])
def test_a_margin_is_exceeded_by_chance_in_five_percent_at_most(images, margin):
    """By summing the probabilities of all outcomes at the margin, whatever share of pairs differs."""
    outcomes = [(b, c) for b in range(images + 1) for c in range(images + 1 - b)]
    rejected = [above(b, c, images, margin) <= 0.05 for b, c in outcomes]
    sizes = []
    for psi in np.linspace(abs(margin), 0.6, 12):
        up, down = (psi + margin) / 2, (psi - margin) / 2
        pmf = stats.multinomial.pmf([(b, c, images - b - c) for b, c in outcomes], images, [up, down, 1 - psi])
        sizes.append(float(pmf[rejected].sum()))
    assert max(sizes) <= 0.05 + 2e-3
    assert max(sizes) > 0.01, "a test that never rejects would pass too"


def test_flipping_signs_agrees_with_counting_them():
    values = np.array([0.3, 0.2, 0.4, 0.1, 0.25, -0.05])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1).T
    exact = np.mean((signs * values).sum(axis=1) >= values.sum() - 1e-12)
    assert flips(values) == pytest.approx(exact, abs=0.004)
    assert flips(-values) == pytest.approx(1 - exact, abs=0.02)
    assert flips(np.zeros(5)) == 1
    assert flips(np.ones(40)) < 1e-4, "equal values are no tie"


def test_very_many_images_are_tested_by_the_normal_limit(monkeypatch):
    values = np.random.default_rng(0).normal(0.02, 0.2, size=400)
    exact = flips(values), above(40, 30, 400, -0.01), above(60, 30, 400, 0.03)
    monkeypatch.setattr("adds.results.claims.paired.EXACT_UP_TO", 100)
    above.cache_clear()
    assert (flips(values), above(40, 30, 400, -0.01), above(60, 30, 400, 0.03)) == pytest.approx(exact, abs=0.01)
    above.cache_clear()
    monkeypatch.undo()
    assert of_shares(*pairs(9000, 6000, 50_000), "not_less", MARGIN).p_for < 1e-9
    assert of_means(np.tile([0.3, -0.1], 25_000), "more", MARGIN).p_for < 1e-9


def test_holm_multiplies_by_what_is_left():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([]) == []


DECIDED = {"holds": (True, False), "contradicted": (False, True), "undecided": (False, False)}
BY_SHARES = {
    "more": {"holds": (30, 5), "contradicted": (5, 30), "undecided": (6, 4)},
    "less": {"holds": (5, 30), "contradicted": (30, 5), "undecided": (6, 4)},
    "within": {"holds": (4, 4), "contradicted": (50, 5), "undecided": (20, 12)},
    "not_less": {"holds": (40, 4), "contradicted": (5, 50), "undecided": (10, 17)},
}
BY_MEANS = {
    "more": {"holds": 0.2, "contradicted": -0.2, "undecided": 0.002},
    "less": {"holds": -0.2, "contradicted": 0.2, "undecided": 0.002},
    "within": {"holds": 0.002, "contradicted": -0.2, "undecided": 0.045},
    "not_less": {"holds": 0.2, "contradicted": -0.2, "undecided": -0.045},
}


@pytest.mark.parametrize("verdict", DECIDED)
@pytest.mark.parametrize("test", BY_SHARES)
def test_shares_are_decided_both_ways_or_not(test, verdict):
    found = of_shares(*pairs(*BY_SHARES[test][verdict], 200), test, MARGIN)
    assert (found.p_for <= 0.05, found.p_against <= 0.05) == DECIDED[verdict]
    assert found.low < found.estimate < found.high
    assert found.discordant == sum(BY_SHARES[test][verdict])


@pytest.mark.parametrize("verdict", DECIDED)
@pytest.mark.parametrize("test", BY_MEANS)
def test_means_are_decided_both_ways_or_not(test, verdict):
    noise = np.random.default_rng(3).normal(size=100)
    noise = 0.1 * (noise - noise.mean()) / noise.std()
    found = of_means(BY_MEANS[test][verdict] + noise, test, MARGIN, largest=1.0)
    assert (found.p_for <= 0.05, found.p_against <= 0.05) == DECIDED[verdict]
    assert found.estimate == pytest.approx(BY_MEANS[test][verdict])


def test_of_two_ways_to_be_outside_a_margin_the_better_one_counts_twice():
    found = of_shares(np.arange(200) < 60, np.arange(200) < 20, "within", MARGIN)
    assert found.p_against == pytest.approx(2 * above(40, 0, 200, MARGIN), rel=1e-9)
    assert 0 < found.p_against < 0.05


def test_the_exact_test_looks_at_every_share_of_pairs_that_differ():
    """Also where more than a third do: against the definition on a grid of its own."""
    n, margin, b, c = 180, 0.05, 48, 38

    def p_at(psi):
        up = (psi + margin) / (2 * psi)
        seen = score(np.array(float(b)), np.array(float(c)), n, margin)
        total = 0.0
        for m in range(n + 1):
            more = np.arange(m + 1.0)
            far = score(more, m - more, n, margin) >= seen - 1e-9
            total += binom.pmf(m, n, psi) * binom.pmf(more[far], m, up).sum()
        return total

    largest = max(p_at(psi) for psi in np.linspace(margin, 1, 120))
    assert above(b, c, n, margin) == pytest.approx(largest, rel=0.01)
    assert largest > 1.005 * max(p_at(psi) for psi in np.linspace(margin, 0.3, 20))


def test_what_never_happens_needs_images_and_one_confirmed_case_ends_it():
    def of_250(seen, could, p=1.0):
        return never(seen, could, MARGIN, p, looked_at=250)

    assert of_250(0, 59).p_for <= 0.05 < of_250(0, 58).p_for
    assert of_250(0, 20).images_needed() == 731, "59 that it could happen to are among so many"
    assert (of_250(1, 250, 1e-9).p_for, of_250(1, 250, 1e-9).p_against) == (1, 1e-9)
    assert of_250(1, 250, 0.4).p_against == 0.4, "an accident of sampling decides nothing"


def test_an_undecided_contrast_says_what_would_decide_it():
    """With so many images the same shares are decided in about 80 of 100 runs."""
    found = of_shares(*pairs(14, 8, 100), "more", MARGIN)
    assert found.p_for > 0.05
    needed = int(found.images_needed())
    rng = np.random.default_rng(0)
    draws = rng.multinomial(needed, [0.14, 0.08, 0.78], size=600)
    power = np.mean([mcnemar(b, c) <= 0.05 for b, c, _ in draws])
    assert 0.72 < power < 0.9
    assert found.smallest_seen == pytest.approx(2.486 * np.sqrt(23 / 102) / 10, rel=1e-3)
    assert of_shares(*pairs(8, 14, 100), "more", MARGIN).images_needed(15) > needed, "Holm makes it dearer"


# Verdicts


def row(p, p_against, verdict="undecided"):
    return Row("a", "b", 1.0, "c", "clean", "more", None, "points", p=p, p_against=p_against, verdict=verdict)


def test_a_claim_holds_only_whole_and_falls_with_one():
    assert claim_verdict(["holds", "holds"]) == "holds"
    assert claim_verdict(["holds", "undecided"]) == "undecided"
    assert claim_verdict(["holds", "undecided", "contradicted"]) == "contradicted"
    assert claim_verdict([]) == "undecided"


def test_contradiction_is_after_holm_and_holding_is_not():
    found = with_verdicts([row(0.04, 1.0), row(1.0, 0.02), row(1.0, 0.6), row(1.0, 0.001, ONE_OF)])
    assert [one.verdict for one in found] == ["holds", "undecided", "undecided", ONE_OF]
    assert found[1].p_holm == pytest.approx(0.06)
    assert [one.verdict for one in with_verdicts([row(1.0, 0.01), row(0.2, 0.9)])] == ["contradicted", "undecided"]


def test_false_verdicts_are_rare_where_nothing_differs():
    """15 contrasts of one method with five rivals at three sigmas, all of them alike."""
    rng = np.random.default_rng(0)
    runs, holds, contradicted, single = 600, 0, 0, []
    for _ in range(runs):
        rows = []
        for _ in range(3):
            easy = rng.uniform(size=(80, 1))  # images differ, methods don't
            right = rng.uniform(size=(80, 6)) < 0.25 + 0.7 * (easy > 0.4)
            for rival in range(1, 6):
                more, fewer = (right[:, 0] & ~right[:, rival]).sum(), (~right[:, 0] & right[:, rival]).sum()
                rows.append(row(mcnemar(int(more), int(fewer)), mcnemar(int(fewer), int(more))))
        single.append(rows[0].p <= 0.05)
        verdict = claim_verdict([one.verdict for one in with_verdicts(rows)])
        holds, contradicted = holds + (verdict == "holds"), contradicted + (verdict == "contradicted")
    assert np.mean(single) <= 0.05 + 0.02
    assert np.mean(single) > 0.005, "a test that never rejects would pass too"
    assert holds == 0
    assert contradicted / runs <= 0.05 + 0.02


def test_false_verdicts_on_means_are_rare():
    rng = np.random.default_rng(1)
    heavy = rng.exponential(size=(500, 30)) - rng.exponential(size=(500, 30))
    assert np.mean([above_zero(values) <= 0.05 for values in heavy]) <= 0.05 + 0.025
    at_margin = rng.normal(MARGIN, 0.2, size=(500, 30))
    found = [above_zero(MARGIN - values) <= 0.05 for values in at_margin]
    assert 0.02 < np.mean(found) <= 0.05 + 0.025


@pytest.mark.parametrize(("share", "lost"), [(0.05, 1.0), (0.025, 2.0), (0.1, 0.5)])
def test_a_few_images_that_lose_much_make_no_false_verdict(share, lost):
    """The mean is on the border: as radii, of which most don't differ. Flipped signs alone pass 8 to 16% of these."""
    values = share * lost - lost * (np.random.default_rng(3).random((400, 180)) < share)
    assert np.mean([flips(one) <= 0.05 for one in values[:200]]) > 0.06
    assert np.mean([above_zero(one) <= 0.05 for one in values]) <= 0.05 + 0.02


@pytest.mark.parametrize(("images", "largest", "holds"), [(24, 0.86, False), (51, 0.86, True), (190, 3.2, False)])
def test_few_images_do_not_show_who_loses_much(images, largest, holds):
    """Nobody of them lost anything. If one in so many loses ``largest``, the mean is on the border all the same."""
    found = of_means(np.zeros(images), "not_less", MARGIN, largest)
    assert (found.p_for <= 0.05) == holds
    assert of_means(np.zeros(images), "not_less", MARGIN).p_for == 1, "nor may it be any number"
    assert found.p_against == 1
    assert found.least == {0.86: 51, 3.2: 191}[largest]
    assert found.images_needed() >= found.least


def test_differences_that_are_no_numbers_decide_nothing():
    """A comparison with one is always false, which would make a p-value of 1 / 20,001."""
    with pytest.raises(ValueError, match="1 of 9 images have no difference"):
        of_means([*range(8), np.nan], "more", MARGIN)


def test_what_is_far_above_zero_is_found_whatever_its_skewness():
    for skewness in (1, -1):
        values = 3.0 + skewness * (np.random.default_rng(4).exponential(size=60) - 1)
        assert above_zero(values) < 1e-3
        assert above_zero(-values) > 0.99
    assert above_zero(np.zeros(9)) == 1
    assert above_zero(np.ones(60)) < 1e-3


def test_fifteen_points_are_found_with_180_images():
    """A true difference of 15 points where 20% of the pairs differ: 17.5% one way, 2.5% the other."""
    draws = np.random.default_rng(2).multinomial(180, [0.175, 0.025, 0.8], size=1000)
    found = [mcnemar(b, c) for b, c, _ in draws]
    assert np.mean([p <= 0.05 for p in found]) >= 0.8
    assert np.mean([p <= 0.05 / 15 for p in found]) >= 0.8, "against a claim of 15 contrasts too"


# Every claim of the file, in a world where it is true, in one where it is false, and where nothing can be known

SIGMAS = (0.4, 0.6, 0.8)
YES_OR_NO = ("certified", "clean")


def levels_of(claim, *, true):
    """How high each setting stands, by measure and sigma, so that all of the claim's contrasts are true, or false."""
    levels = {}
    for _ in range(6):  # as long as the longest chain of settings
        for part in claim.parts:
            if part.table or part.against or part.test == "never":
                continue
            for contrast in contrasts(part, SIGMAS):
                up = part.test != "less" or contrast.sigma is None
                for sigma in [contrast.sigma] if contrast.sigma else SIGMAS:
                    here = levels.setdefault((part.measure, sigma), dict.fromkeys((*SETTINGS.values(), None), 0.0))
                    tilt = {"less": 0.8 - sigma, "more": sigma - 0.4}[part.test] if not contrast.sigma else 0.0
                    if part.test in ("within", "not_less") and true:
                        here[contrast.of] = max(here[contrast.of], here[contrast.than])
                        continue
                    ahead, behind = (contrast.of, contrast.than) if up == true else (contrast.than, contrast.of)
                    here[ahead] = max(here[ahead], here[behind] + 0.12 + (0.5 if true else -0.2) * tilt)
    return levels


def world(claim, kind, images=150):
    """Made-up measures of all settings under which the claim holds, is contradicted, or stays open (few images)."""
    rng = np.random.default_rng(5)
    images = images if kind != "undecided" else 12
    levels = levels_of(claim, true=kind == "holds") if kind != "undecided" else {}
    frames = []
    for sigma in SIGMAS:
        u = rng.permutation((np.arange(images) + 0.5) / images)
        for variant in SETTINGS.values():
            frame = pd.DataFrame({"number": range(images), "selected_true": u, "sigma": sigma})
            frame["method"], frame["votes"] = variant
            for name in UNITS:
                here = levels.get((name, sigma), dict.fromkeys(SETTINGS.values(), 0.0))
                level = here[variant] - here.get(None, 0.0)
                if name in YES_OR_NO:
                    frame[name] = u < 0.25 + level if images > 12 else u < rng.uniform(0.3, 0.6)
                else:
                    frame[name] = level + rng.normal(0, 0.02 if images > 12 else 1.0, images)
            frame["abstained"] = ~frame["certified"]
            frame["prediction"], frame["counts_estimation"], frame["stopped"] = 1, [[100, 900]] * images, "fixed"
            frames.append(frame)
    return Measured(pd.concat(frames, ignore_index=True), largest={"radius": 1.0})


def set_rows(measured, variant, **columns):
    rows = measured.values
    chosen = (rows["method"] == variant.method) & (rows["votes"] == variant.votes)
    for name, of in columns.items():
        rows.loc[chosen, name] = of(rows[chosen])
    return measured


def special(claim, measured, kind):
    """What the levels can't express: who is easy, what voting changes, tables of other experiments."""
    tables, up = {}, 1 if kind == "holds" else -1
    if claim.name == "certify_more_of_right":
        measured.values["clean"] = True
    if claim.name == "votes_concentrate" and kind != "undecided":
        for name in ("densepure5", "adds5"):
            set_rows(
                measured, SETTINGS[name], true_share=lambda r: r["true_share"] + up * np.sign(r["selected_true"] - 0.5)
            )
    if claim.name == "votes_turn_abstentions" and kind != "undecided":
        measured.values["clean"] = True
        share = {"adds": 0.3, "adds5": 0.3 + 0.2 * up}
        for name, certified in share.items():
            set_rows(
                measured,
                SETTINGS[name],
                certified=lambda r, s=certified: r["selected_true"] < s,
                abstained=lambda r, s=certified: r["selected_true"] >= s,
            )
    if claim.name == "votes_err_in_abstentions":
        measured.values["clean"] = True
        if kind == "holds":
            half = {"clean": lambda r: r["number"] % 2 > 0, "abstained": lambda r: r["number"] % 2 == 0}
            set_rows(measured, SETTINGS["adds5"], **half)
        if kind == "contradicted":
            wrong = {"clean": lambda r: r["number"] > 0, "abstained": lambda r: r["number"] > 0}
            set_rows(measured, SETTINGS["adds5"], **wrong)
    if claim.name in ("scale_costs_variance", "noise_by_sigma") and kind != "undecided":
        table, column, values = {
            "scale_costs_variance": ("sweep", "guidance_scale", (0.6, 0.8, 1.0)),
            "noise_by_sigma": ("ablation", "noise", ("timestep", "sigma")),
        }[claim.name]
        parts = [measured.values.assign(**{"start": "grid", column: value}) for value in values]
        for rank, part in enumerate(parts):
            part[["agreement", "true_share"]] += 0.1 * up * rank
        tables[table] = pd.concat(parts, ignore_index=True)
    return tables


@pytest.mark.parametrize("kind", ["holds", "contradicted", "undecided"])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_can_hold_fall_and_stay_open(claim, kind):
    measured = world(claim, kind)
    tables = special(claim, measured, kind)
    claims, rows = evaluate([claim], measured, tables=tables, published=PUBLISHED)
    told = rows[rows["verdict"] != ONE_OF][
        ["contrast", "sigma", "measure", "estimate", "p", "p_holm", "verdict", "needs"]
    ]
    assert claims.loc[0, "verdict"] == kind, told.to_string()
    if kind == "holds":
        assert claims.loc[0, "contrasts_holds"] == claims.loc[0, "contrasts"] > 0
    if kind == "undecided":
        assert rows["images_needed"].notna().any() or claims.loc[0, "needs"]


def test_what_could_happen_to_no_image_is_not_known_never_to_happen():
    [claim] = [claim for claim in CLAIMS if claim.name == "votes_err_in_abstentions"]
    measured = world(claim, "holds")
    measured.values["clean"] = True
    claims, _ = evaluate([claim], measured)
    assert claims.loc[0, ["verdict", "needs"]].tolist() == ["undecided", "images that become wrong"]


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ({"adds": 0.6, "carlini": 0.4, "densepure": 0.4, "densepure5": 0.4}, "holds"),
        ({"adds": 0.6, "carlini": 0.4, "densepure": 0.4, "densepure5": 0.6}, "undecided"),
        ({"adds": 0.6, "carlini": 0.4, "densepure": 0.4, "densepure5": 0.8}, "contradicted"),
        ({"adds": 0.8, "adds5": 0.1, "adds_oneshot": 0.1}, "holds"),
    ],
)
def test_some_setting_must_beat_every_rival(shares, verdict):
    """Others stand at 0.5. To be ahead of two rivals of three is no improvement; one of three settings suffices."""
    [claim] = [claim for claim in CLAIMS if claim.name == "improves_both"]
    measured = world(claim, "holds")
    for name, variant in SETTINGS.items():
        share = shares.get(name, 0.5)
        right = {measure: lambda rows, s=share: rows["selected_true"] < s for measure in ("certified", "clean")}
        set_rows(measured, variant, **right)
    claims, rows = evaluate([claim], measured)
    assert claims.loc[0, "verdict"] == verdict
    assert (rows["verdict"] == ONE_OF).sum() == 54
    assert claims.loc[0, "contrasts"] == 2


def test_the_file_has_the_papers_six_settings_and_names_everything():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) >= 21
    for claim in CLAIMS:
        assert claim.text
        assert claim.where
        assert claim.family
        assert claim.paper
        for part in claim.parts:
            assert part.measure in UNITS
            assert set(part.of) | {than for than in part.than if than} <= set(SETTINGS.values())
    [best] = [claim for claim in CLAIMS if claim.name == "best_clean"]
    assert len(best.parts[0].than) == 5, "rivals are the other five"


def test_words_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="'bigger' is none of"):
        Part("clean", "bigger", "each", [], [], 0.05)
    with pytest.raises(ValueError, match="test: within is for values, not for slopes"):
        Part("radius", "within", "across", [], [], 0.05)
    for test, among in (("never", None), ("never", "right"), ("more", "becomes_wrong")):
        with pytest.raises(ValueError, match="test: never, and no other test, is among: becomes_wrong"):
            Part("clean", test, "each", [], [], 0.05, among=among)


def test_a_claim_says_what_a_run_lacks():
    [claim] = [claim for claim in CLAIMS if claim.name == "best_certified"]
    measured = world(claim, "holds", images=30)
    one = Measured(measured.values[measured.values["sigma"] == 0.4])
    claims, rows = evaluate([claim], one)
    assert claims.loc[0, ["verdict", "needs"]].tolist() == ["undecided", "two sigmas"]
    assert rows["paper"].isna().all()
    fewer = Measured(measured.values[measured.values["method"] != "densepure"])
    assert evaluate([claim], fewer)[0].loc[0, "needs"] == "DensePure; DensePure, 5 votes"
    lacking = Measured(measured.values, {"certified": "a question"})
    assert evaluate([claim], lacking)[0].loc[0, "needs"] == "a question"


def test_other_methods_take_no_part():
    [claim] = [claim for claim in CLAIMS if claim.name == "best_clean"]
    measured = world(claim, "holds")
    more = Measured(pd.concat([measured.values, measured.values.assign(method="rs", clean=True)], ignore_index=True))
    assert evaluate([claim], more)[0].equals(evaluate([claim], measured)[0])


# From counts to measures


def made_up_counts(**changes):
    """Two settings, three images of two classes; label 0."""
    rows = [
        {
            "method": "adds",
            "sigma": 0.5,
            "votes": votes,
            "number": number,
            "label": 0,
            "counts_selection": [8, 2],
            "counts_estimation": [90, 10] if votes == 5 else [60, 40],
            "counts_first": [18, 2] if votes == 5 else [10, 10],
            "n0": 10,
            "n": 100,
            "stopped": "fixed",
            "evaluations": 110 * votes,
            "seconds": 1.0,
            "budget_share": 1.0,
            "ballot_pairs": 20 if votes == 5 else 0,
            "ballot_disagreements": 5 if votes == 5 else 0,
            "stop_timestep": 150.0,
            "spent_before": 0.1,
            "seed": 0,
            "guidance_scale": 0.8,
            **dict.fromkeys(OPTIONS, ""),
            "identity": "x",
            "device_kind": "cpu",
            "device": "cpu",
            **changes,
        }
        for votes in (1, 5)
        for number in range(3)
    ]
    return pd.DataFrame(rows)


def measured_counts(counts, **more):
    mode = "fixed" if more.get("questions") is None else "sequential"
    certified = certificates(counts, alpha=0.05, mode=mode, bounds=["cohen", "pair"])
    return measure(counts, certified, starts={0.5: 200}, **more)


def test_measures_come_from_counts():
    found = measured_counts(made_up_counts())
    assert set(UNITS) - set(found.values) - {"becomes_certified", "certified_error"} == {"sharpness", "distance"}
    five = found.of(Variant("adds", 5), 0.5).iloc[0]
    assert five["certified"]
    assert five["clean"]
    assert five["true_share"] == five["top_share"] == 0.9
    assert five["agreement"] == pytest.approx((90 * 89 + 10 * 9) / (100 * 99))
    assert (five["disagreement"], five["less_noise"]) == (0.25, 50)
    assert five["log_evaluations"] == pytest.approx(np.log(5))
    assert 0 < five["radius"] < found.largest["radius"]
    assert found.largest["radius"] == pytest.approx(
        certify(selection=[1], estimation=[100], sigma=1, alpha=0.05).radius
    )
    one = found.of(Variant("adds", 1), 0.5).iloc[0]
    assert one["disagreement"] != one["disagreement"], "one vote has no second ballot"
    assert one["near_only"] == float(one["certified"]), "it isn't certified at half of sigma"
    detail = made_up_counts()[["method", "sigma", "votes", "number"]].assign(sharpness=1.0, distance=np.e)
    assert measured_counts(made_up_counts(), detail=detail).values["distance"].eq(1).all()


def test_where_sampling_stopped_early_shares_are_the_first_samples():
    asked = [{"bound": "cohen", "radius": 0.0}]
    stopped = made_up_counts(stopped="answered")
    found = measured_counts(stopped, questions=asked)
    assert found.of(Variant("adds", 1), 0.5)["true_share"].eq(0.5).all()
    assert not {"certified", "radius", "near_only"} & set(found.missing)
    assert "certified" in measured_counts(stopped, questions=[{"bound": "pair", "radius": 0.0}]).missing
    old = stopped.drop(columns=["counts_first", "ballot_pairs", "stop_timestep"])
    lacking = measured_counts(old, questions=asked).missing
    assert all("--forcerun certify" in lacking[name] for name in ("true_share", "disagreement", "less_noise"))


def test_where_sampling_stopped_early_radii_are_those_of_a_fixed_number():
    """The first samples', whatever came after: 38 of 40 as a run with n = 40 would certify them."""
    asked = [{"bound": "cohen", "radius": 0.0}]
    stopped = made_up_counts(stopped="answered")
    stopped["counts_first"] = [[38, 2]] * len(stopped)
    measured = measured_counts(stopped, questions=asked)
    found = measured.values
    most = certify(selection=[1, 0], estimation=[40, 0], sigma=0.5, alpha=0.05).radius / 0.5
    assert measured.largest["radius"] == pytest.approx(most)
    expected = certify(selection=[1, 0], estimation=[38, 2], sigma=0.5, alpha=0.05).radius / 0.5
    assert expected > 0.5
    assert found["radius"].tolist() == pytest.approx([expected] * len(stopped))
    assert found["near_only"].eq(0).all()
    wrong = measured_counts(stopped.assign(label=1), questions=asked).values
    assert wrong["radius"].eq(0).all()
    few = measured_counts(stopped.assign(counts_first=[[4, 0]] * len(stopped)), questions=asked).missing
    assert "sampling.stop.at_least of 5 or more" in few["radius"]


def test_without_labels_nothing_is_claimed():
    counts = made_up_counts().astype({"label": "Int64"})
    counts.loc[0, "label"] = pd.NA
    claims, _ = evaluate(CLAIMS, measured_counts(counts))
    assert set(claims["verdict"]) == {"undecided"}
    assert claims["needs"].str.contains("labels|two sigmas|sweep|ablation").all()


def test_what_voting_changes():
    one = pd.DataFrame({"clean": [True, True, True, False], "abstained": [True, True, False, True]})
    votes = pd.DataFrame({"clean": [True, False, False, False], "abstained": [False, True, False, True]})
    one["certified"], votes["certified"] = one["clean"] & ~one["abstained"], votes["clean"] & ~votes["abstained"]
    found = changes_by_voting(votes, one)
    assert found["becomes_certified"].tolist() == [True, False, False, False]
    assert found["other_change"].tolist() == [False, True, True, False]
    assert found["becomes_wrong"].tolist() == [False, True, True, False]
    assert found["certified_error"].tolist() == [False, False, True, False]
    votes["prediction"], votes["counts_estimation"] = 1, [[0, 10], [0, 10], [1, 9], [0, 10]]
    fixed, watched = votes.assign(stopped="fixed"), votes.assign(stopped="answered")
    assert confirmed(fixed, found["certified_error"]) == pytest.approx(4 * 11 / 1024)
    assert confirmed(fixed, found["certified_error"] & False) == 1
    evidence = 2 * quad(lambda p: (2 * p) ** 9 * (2 - 2 * p), 0.5, 1)[0]
    assert confirmed(watched, found["certified_error"]) == pytest.approx(4 / evidence)


def test_errors_of_watched_counts_are_rarely_confirmed_by_chance():
    """Sampling that stops as soon as a fixed-n tail is small would confirm some error in far more than 5% of runs."""
    rng, runs, images, chance = np.random.default_rng(0), 200, 50, 0
    for _ in range(runs):
        tosses = rng.integers(0, 2, (images, 256)).cumsum(axis=1)
        looks = np.arange(32, 257, 16)
        tails = binom.sf(tosses[:, looks - 1] - 1, looks, 0.5)
        stopped = np.where((tails <= 0.001).any(axis=1), (tails <= 0.001).argmax(axis=1), len(looks) - 1)
        n = looks[stopped]
        k = tosses[np.arange(images), n - 1]
        counts = [[int(total - wrong), int(wrong)] for wrong, total in zip(k, n, strict=True)]
        rows = pd.DataFrame({"counts_estimation": counts, "prediction": 1, "stopped": "answered"})
        chance += confirmed(rows, rows["prediction"] == 1) <= 0.05
    assert chance / runs <= 0.05


def test_slopes_need_every_sigma():
    part = Part("sharpness", "more", "across", [SETTINGS["adds"]], [SETTINGS["carlini"]], MARGIN)
    [contrast] = contrasts(part, SIGMAS)
    [claim] = [claim for claim in CLAIMS if claim.name == "detail_for_fidelity"]
    found = find(contrast, world(claim, "holds"), {})
    assert found.estimate == pytest.approx(0.5, abs=0.1)


# What is shown


def test_the_table_is_written_and_counted(tmp_path):
    claims, rows = evaluate(CLAIMS[:3], world(CLAIMS[1], "holds"), published=PUBLISHED)
    write_claims(claims, rows, stem=tmp_path / "claims")
    text = (tmp_path / "claims.md").read_text()
    assert text.startswith(f"{counted(claims)}.\n")
    assert f"| {CLAIMS[1].text} | Section 4, Table 2 |" in text
    assert "**holds** | 15 of 15 contrasts hold |" in text
    table = pd.read_csv(tmp_path / "claims.csv")
    wanted = {"sigma", "contrast", "estimate", "low", "high", "images", "discordant", "p", "p_holm", "paper", "verdict"}
    assert wanted | {"smallest_seen", "images_needed", "needs", "family", "where"} <= set(table)
    page = (tmp_path / "claims.html").read_text()
    assert body_of(page).startswith(f"<p><b>{counted(claims)}.</b></p>"), "the report adds a heading"
    assert page.count("<details>") == 3
    assert "\\n" not in page
    assert title("adds_oneshot", 1) in page
    assert "15 of 15" in (tmp_path / "claims.tex").read_text()


def test_signs_of_claims_are_escaped(tmp_path):
    claims, rows = evaluate(CLAIMS[:1], world(CLAIMS[0], "holds"), published=PUBLISHED)
    write_claims(claims.assign(text="A_1 < 5% & more"), rows.assign(contrast="A < B"), stem=tmp_path / "claims")
    assert r"A\_1 $<$ 5\% \& more & " in (tmp_path / "claims.tex").read_text()
    page = (tmp_path / "claims.html").read_text()
    assert "A_1 &lt; 5% &amp; more <small>" in page
    assert "<td>A &lt; B</td>" in page


# The paper's own numbers


@pytest.fixture(scope="module")
def printed():
    return on_paper(CLAIMS, PUBLISHED)


def test_printed_numbers_that_do_not_go_the_claimed_way(printed):
    claims, rows = printed
    against = rows[(rows["paper_agrees"] == False) & (rows["verdict"] != ONE_OF)]  # noqa: E712
    found = set(zip(against["claim"], against["measure"], against["paper"].round(2), strict=True))
    assert found == {
        ("variance_lowers_clean", "clean", 2.8),  # DensePure 58.0, Carlini et al. 55.2
        ("votes_up_and_down", "clean", 0.0),  # unchanged by voting at 1.0, twice
        ("oneshot_outperformed", "certified", -0.8),
        ("oneshot_outperformed", "certified", 0.0),
        ("oneshot_outperformed", "certified", 1.6),  # the gap's slope
    }
    assert not (claims["verdict"] == "contradicted").any()


def test_published_shares_decide_only_what_no_pairing_changes():
    part = Part("certified", "more", "each", [], [], MARGIN)
    assert for_all_pairings(part, 200, 100, 250).p_for < 0.001
    found = for_all_pairings(part, 117, 114, 250)
    assert found.p_for > 0.3
    assert found.p_for == pytest.approx(mcnemar(117, 114))


def test_the_document_shows_what_the_command_prints(printed):
    text = (PROJECT / "docs/claims.md").read_text()
    assert markdown(*printed) in text
