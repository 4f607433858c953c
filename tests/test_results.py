"""Accuracies, paired differences, tables and the replay of sequential sampling."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from adds.registry import METHODS, PAPER_N, PAPER_N0, Variant
from adds.results.accuracy import (
    accuracy_steps,
    accuracy_table,
    bounds_table,
    interval,
    is_certified,
    mean_interval,
    paired_table,
    radius_table,
    true_class_shares,
    value_at,
)
from adds.results.again import leads_again, majority_again, outcomes_again, seeds_errors
from adds.results.certified import by_bound, certificates
from adds.results.figures import samples_needed
from adds.results.figures.style import look
from adds.results.page import body_of
from adds.results.savings import saving_note, saving_table
from adds.results.tables import (
    accuracy_cells,
    beside_paper,
    best_cells,
    paired_cells,
    partial_mark,
    radius_cells,
    saving_cells,
    write,
    write_note,
)
from adds.sampling.ledger import Chunk, FamilyLedgers
from adds.sampling.replay import QUESTION, Recorded, paper_size, replay, replay_all, sequence
from adds.sampling.stopping import LABEL_QUESTIONS, Certified, SampleSize, Stop
from tests.test_ledger import identity_of, images_of, job, sampler_in_closed_form


def counts_of(method="adds", sigma=0.5, votes=1, number=0, estimation=(9, 1), label=0):
    return {
        "method": method,
        "sigma": sigma,
        "votes": votes,
        "number": number,
        "label": label,
        "counts_selection": list(estimation),
        "counts_estimation": list(estimation),
    }


def certified_frame(radii, *, correct=True, method="adds", votes=1, bound="cohen"):
    return pd.DataFrame(
        {
            "method": method,
            "sigma": 0.5,
            "votes": votes,
            "number": range(len(radii)),
            "correct": correct,
            "top_correct": correct,
            "abstained": [radius == 0 for radius in radii],
            "radius": radii,
            "bound": bound,
        }
    )


def test_certified_accuracy_counts_right_unabstained_and_large_enough():
    frame = certified_frame([0.0, 0.1, 0.2, 0.4])
    frame.loc[3, "correct"] = False
    assert is_certified(frame).tolist() == [False, True, True, False]
    assert is_certified(frame, 0.15).tolist() == [False, False, True, False]
    at_radii = value_at(accuracy_steps(frame), np.array([0.0, 0.1, 0.15, 0.3]))
    assert at_radii.tolist() == [50, 50, 25, 0]


def test_intervals_are_exact_binomial():
    low, high = interval(3, 10)
    assert stats.binom.sf(2, 10, low) == pytest.approx(0.025)
    assert stats.binom.cdf(3, 10, high) == pytest.approx(0.025)
    table = accuracy_table(pd.Series([True, False, True, True]), certified_frame([1, 1, 1, 1]))
    assert table.loc[0, "accuracy_percent"] == 75
    assert table.loc[0, "low_percent"] == pytest.approx(100 * interval(3, 4)[0])
    assert table.loc[0, "images"] == 4


def test_paired_differences_see_what_separate_means_can_not():
    rng = np.random.default_rng(0)
    rows = []
    for number, base in enumerate(rng.uniform(100, 900, size=30)):
        rows.append(counts_of("carlini", number=number, estimation=(int(base), 1000 - int(base))))
        rows.append(counts_of("adds", number=number, estimation=(int(base) + 20, 980 - int(base))))
    table = paired_table(true_class_shares(pd.DataFrame(rows)), ("carlini", 1)).set_index("method")
    assert table.loc["adds", "difference_points"] == pytest.approx(2)
    assert table.loc["adds", "difference_low_points"] > 0
    assert table.loc["adds", "low_percent"] < table.loc["carlini", "mean_percent"]
    assert table.loc["carlini", "difference_points"] == 0
    assert paired_cells(table.reset_index())[Variant("adds", 1), 0.5].endswith("(+2.0 [+2.0, +2.0])")


def test_the_true_classs_share_is_not_biased_by_stopping():
    """Sampling stops where the label leads: its share of all samples is too large, of those drawn in any case not."""
    rng, size = np.random.default_rng(1), SampleSize(n0=8, n=256, stop=Stop([Certified("cohen", 0.0)], at_least=16))
    rows = []
    for number in range(400):
        predictions = (rng.random(size.n) > 0.7).astype(int)
        rule = size.estimation_rule(0, sigma=0.5)
        looks = [np.bincount(predictions[:end], minlength=2) for end in range(16, size.n + 1, 16)]
        stopped = next(counts for counts in looks if rule(counts))
        row = counts_of(number=number, estimation=tuple(int(count) for count in stopped))
        rows.append({**row, "label": 0, "counts_first": looks[0].tolist()})
    counts = pd.DataFrame(rows)
    _, low, high = mean_interval(true_class_shares(counts)["p_true"].to_numpy())
    assert low < 0.7 < high
    _, low, _ = mean_interval(true_class_shares(counts.drop(columns="counts_first"))["p_true"].to_numpy())
    assert low > 0.7


def test_the_paper_is_compared_with_its_own_bound():
    shown = accuracy_table(pd.Series([True] * 4), certified_frame([1] * 4))
    by_cohen = accuracy_table(pd.Series([True, False, False, False]), certified_frame([1] * 4))
    paper = pd.DataFrame({"method": ["adds"], "sigma": [0.5], "votes": [1], "certified_accuracy": [30.0]})
    table = beside_paper(shown, by_cohen, paper, paper[["method", "sigma", "votes"]].assign(error=0.0))
    assert table.loc[0, "accuracy_percent"] == 100
    assert table.loc[0, "difference_points"] == pytest.approx(-5)
    assert table.loc[0, "error_points"] == pytest.approx(100 * np.sqrt(0.3 * 0.7 / 4 * (1 - 4 / 250)))
    assert accuracy_cells(table) == {(Variant("adds", 1), 0.5): "100.0 [39.8, 100.0] (paper 30.0, -5.0)"}


def test_a_difference_that_fresh_samples_do_not_explain_is_marked():
    """On the same 250 images two points are a lot if they are sure of themselves, and little if they aren't."""
    table = pd.DataFrame({"method": "carlini", "sigma": [1.0, 1.5], "votes": 1, "images": 250, "accuracy_percent": 60})
    table[["low_percent", "high_percent"]] = 0.0
    paper = pd.DataFrame({"method": "carlini", "sigma": [1.0, 1.5], "votes": 1, "value": [62.0, 62.0]})
    probabilities = pd.DataFrame(
        {
            "method": "carlini",
            "sigma": np.repeat([1.0, 1.5], 250),
            "votes": 1,
            "value": [1.0] * 150 + [0.0] * 100 + [1.0] * 145 + [0.5] * 10 + [0.0] * 95,
        }
    )
    errors = seeds_errors(probabilities, "value")
    assert errors["error"].tolist() == pytest.approx([0, np.sqrt(2 * 10 * 0.25) / 250])
    compared = beside_paper(table, table, paper, errors)
    assert list(compared["within_error"]) == [False, False]
    closer = beside_paper(table, table, paper.assign(value=61.2), errors)
    assert list(closer["within_error"]) == [False, True]
    texts = list(accuracy_cells(compared).values())
    assert "(paper 62.0, -2.0*)" in texts[0]
    fewer = beside_paper(table.assign(images=50), table, paper, errors)
    assert list(fewer["within_error"]) == [True, True], "50 of the paper's images may be others than its mean"
    assert not beside_paper(table, table, paper, None)["within_error"].any()


def test_an_image_counts_again_as_often_as_it_would():
    """Against drawing both runs: a true share, our counts from it, and then fresh ones."""
    rng = np.random.default_rng(0)
    n, alpha, truth = 400, 0.001, rng.uniform(0.5, 0.65, size=4000)
    ours, fresh = rng.binomial(n, truth), rng.binomial(n, truth)
    certified = fresh >= stats.binom.isf(alpha, n, 0.5) + 1
    predicted = majority_again(ours, n, n=n, alpha=alpha)
    assert predicted.mean() == pytest.approx(certified.mean(), abs=0.02)
    sure = predicted > 0.8
    assert certified[sure].mean() == pytest.approx(predicted[sure].mean(), abs=0.06)
    assert majority_again(n, n, n=n, alpha=alpha) == pytest.approx(1)
    assert leads_again(300, 100, 400, fresh=400) > 0.999
    assert leads_again(200, 200, 400, fresh=100) == 0.5
    assert leads_again([400, 0], [0, 400], 400, fresh=400).tolist() == [1, 0]
    seen = stats.multinomial.rvs(200, [0.4, 0.35, 0.25], size=4000, random_state=1)
    again = stats.multinomial.rvs(200, [0.4, 0.35, 0.25], size=4000, random_state=2)
    ahead = leads_again(seen[:, 0], seen[:, 1], 200, fresh=200)
    assert ahead.mean() == pytest.approx(np.mean(again[:, 0] > again[:, 1]), abs=0.1)


def test_outcomes_under_fresh_samples_come_from_both_stages():
    counts = pd.DataFrame([counts_of(estimation=(300, 60)), counts_of(number=1, estimation=(60, 300))])
    found = outcomes_again(counts, n0=100, n=360, alpha=0.001)
    assert found["certified_accuracy"].round(6).tolist() == [1, 0]
    assert found["clean_accuracy"].round(6).tolist() == [1, 0]


def test_average_radii_count_wrong_and_abstained_images_as_zero():
    parts = [
        certified_frame([0, 0.2, 0.4], method="carlini"),
        certified_frame([0, 0.3, 0.6]),
        certified_frame([0.1, 0.2, 0.4], method="carlini", bound="pair"),
        certified_frame([0.1, 0.3, 0.6], bound="pair"),
    ]
    parts[1].loc[2, "correct"] = False
    table = radius_table(pd.concat(parts, ignore_index=True), ("carlini", 1)).set_index("method")
    assert table.loc["carlini", ["cohen", "pair"]].tolist() == pytest.approx([0.2, 0.7 / 3])
    assert table.loc["adds", ["cohen", "pair"]].tolist() == pytest.approx([0.1, 1 / 3])
    assert table.loc["adds", "cohen_difference"] == pytest.approx(-0.1)
    assert table.loc["adds", ["abstained_percent", "wrong_percent"]].tolist() == pytest.approx([100 / 3, 100 / 3])
    assert table.loc["adds", "pair_low"] < 0.1 < table.loc["adds", "pair_high"]
    texts = radius_cells(table.reset_index())
    assert texts[Variant("carlini", 1), 0.5] == "0.200 → 0.233; abstained 33.3, wrong 0.0"
    assert texts[Variant("adds", 1), 0.5].startswith("0.100 (-0.100 [")


def test_only_the_best_of_each_sigma_is_bold(tmp_path):
    frames = [certified_frame([1, 1, 0]), certified_frame([1, 0, 0], method="rs")]
    both = pd.concat(frames, ignore_index=True)
    table = accuracy_table(is_certified(both), both)
    stem, cells = tmp_path / "table", accuracy_cells(table)
    write(table, cells, value="accuracy_percent", note="A note.", stem=stem)
    text = stem.with_suffix(".md").read_text()
    assert "| ADDS | **66.7 [9.4, 99.2]** |" in text
    assert "| RS, clean classifier | 33.3 [0.8, 90.6] |" in text
    assert "A note. In bold the largest of each sigma" in text
    latex = stem.with_suffix(".tex").read_text()
    assert r"$\sigma$ & 0.5 \\" in latex
    assert r"ADDS & \bfseries 66.7 [9.4, 99.2] \\" in latex
    assert r"RS, clean classifier & 33.3 [0.8, 90.6] \\" in latex
    page = stem.with_suffix(".html").read_text()
    assert re.findall(r"#(\w+) {\s+font-weight: bold;", page) == ["T_table_row1_col0"]
    assert re.search(r'id="T_table_row1_col0"[^>]*>66.7 ', page)
    write(table, cells, value="accuracy_percent", note="A note.", stem=stem, partial=True)
    for suffix in (".md", ".tex", ".html"):
        text = stem.with_suffix(suffix).read_text()
        assert not re.search("[*][*]|bfseries|font-weight|In bold", text), "partial results have no best one"


@pytest.mark.parametrize(
    ("value", "values", "bold"),
    [
        ("a_percent", [90.0, 80.0, 90.0, 70.0], [0, 2]),
        ("a_percent", [90.0, 80.0, 90.0, 90.0], []),
        ("a_percent", [90.01, 80.0, 90.04, 89.96], []),
        ("a_percent", [90.01, 80.0, 90.06, 89.96], [2]),
        ("radius", [0.5004, 0.5001, 0.4], []),
        ("radius", [0.5006, 0.5001, 0.4], [0]),
        ("radius", [0.5], []),
    ],
)
def test_nothing_is_bold_where_more_than_half_tie_as_they_are_printed(value, values, bold):
    methods = ["rs", "carlini", "densepure", "adds"][: len(values)]
    table = pd.DataFrame({"method": methods, "sigma": 0.5, "votes": 1, value: values})
    alone = pd.DataFrame({"method": ["rs", "adds"], "sigma": 1.0, "votes": 1, value: [1.0, 2.0]})
    found = best_cells(pd.concat([table, alone], ignore_index=True), value)
    assert found == {(Variant(methods[place], 1), 0.5) for place in bold} | {(Variant("adds", 1), 1.0)}


def test_signs_are_escaped_and_the_body_reads_alone(tmp_path):
    cells = {(Variant("adds", 1), 0.5): "1_% → <2> & #3"}
    write(pd.DataFrame(), cells, note="A note: r < 1.", stem=tmp_path / "a_table")
    assert r"& 1\_\% $\to$ $<$2$>$ \& \#3 \\" in (tmp_path / "a_table.tex").read_text()
    page = (tmp_path / "a_table.html").read_text()
    assert "<title>A table</title>" in page
    body = body_of(page)
    assert body.startswith('<div class="scroll">')
    assert "1_% → &lt;2&gt; &amp; #3" in body
    assert body.endswith('<p class="note">A note: r &lt; 1.</p>')
    write_note("No table.", stem=tmp_path / "none")
    assert (tmp_path / "none.tex").read_text() == "% No table.\n"
    assert body_of((tmp_path / "none.html").read_text()).strip() == '<p class="note">No table.</p>'


def test_columns_say_their_unit():
    """A share without a unit in its name is a fraction to one reader and percent to another."""
    both = pd.concat([certified_frame([0, 1], bound=bound) for bound in ("cohen", "pair")], ignore_index=True)
    by_cohen = by_bound(both, "cohen")
    shares = true_class_shares(pd.DataFrame([counts_of(), counts_of(number=1)]))
    found = {
        "accuracy": accuracy_table(is_certified(by_cohen), by_cohen),
        "paired": paired_table(shares, ("adds", 1)),
        "bounds": bounds_table(both),
        "radius": radius_table(both, ("adds", 1)),
    }
    radii = ["cohen", "cohen_difference", "cohen_low", "cohen_high"]
    radii += [name.replace("cohen", "pair") for name in radii]
    plain = {"method", "sigma", "votes", "images", "radius_cohen", "radius_pair", *radii}
    for table in found.values():
        assert all(name.endswith(("_percent", "_points")) for name in set(table) - plain), list(table)
    assert found["bounds"].loc[0, ["cohen_percent", "pair_percent", "clean_percent"]].tolist() == [50, 50, 100]


def test_gain_of_the_pair_bound():
    both = pd.concat(
        [certified_frame([0, 0.2, 0.4]), certified_frame([0.1, 0.2, 0.3], bound="pair")], ignore_index=True
    )
    row = bounds_table(both).iloc[0]
    assert row[["cohen_percent", "pair_percent", "clean_percent"]].tolist() == pytest.approx([200 / 3, 100, 100])
    assert (row["radius_cohen"], row["radius_pair"]) == (pytest.approx(0.2), pytest.approx(0.2))


AT_ZERO = {"classes": 10, "sigma": 0.5, "size": paper_size(QUESTION, alpha=0.001)}


def test_replay_of_a_sure_image_is_short():
    found = replay(np.zeros(100, int), np.zeros(350, int), **AT_ZERO)
    assert found.reason == "answered"
    assert found.samples == 8 + 16
    assert (PAPER_N0 + PAPER_N) / found.samples > 200


def test_replay_does_not_call_open_images_decided():
    tie = np.arange(350) % 2
    assert replay(tie[:100], tie, **AT_ZERO).reason is None
    assert replay(tie[:100], np.zeros(350, int), **AT_ZERO).reason is None, "selection too"
    assert replay(np.empty(0, int), np.empty(0, int), **AT_ZERO).reason is None


def test_replay_of_a_label_needs_no_selection():
    by_label = {**AT_ZERO, "size": paper_size(*LABEL_QUESTIONS.values(), alpha=0.001)}
    found = replay(np.empty(0, int), np.zeros(350, int), **by_label, label=0)
    assert (found.samples, found.about, found.reason) == (16, 0, "answered")
    with pytest.raises(ValueError, match="about the label"):
        replay(np.empty(0, int), np.zeros(350, int), **by_label)


def chunk(first, ballots, **changes):
    return Chunk("adds", 0, "", "estimation", first, np.array(ballots, np.uint16), **changes)


def test_a_sequence_takes_each_sample_once_and_in_order():
    chunks = [chunk(2, [[3], [4]]), chunk(0, [[1], [2], [3]]), chunk(9, [[8]])]
    assert sequence(chunks, Variant("adds", 1)).tolist() == [1, 2, 3, 4]
    assert sequence(chunks, Variant("adds", 5)).tolist() == [], "one vote doesn't hold five"
    assert sequence(chunks, Variant("carlini", 1)).tolist() == []


def test_a_sequence_of_members_is_taken_from_the_leaders_chunks():
    held = {"adds_oneshot": np.array([5, 6], np.uint16)}
    chunks = [chunk(0, [[1, 2, 2], [3, 3, 4]], contained=held), chunk(2, [[7]])]
    assert sequence(chunks, Variant("adds", 3)).tolist() == [2, 3]
    assert sequence(chunks, Variant("adds", 1)).tolist() == [1, 3, 7]
    assert sequence(chunks, Variant("adds_oneshot", 1)).tolist() == [5, 6]


def test_a_run_is_replayed_from_its_ledgers(schedule, tmp_path):
    """A white image, which RS is sure of, and a grey one, which the recorded samples leave open."""
    rs, identity = Variant("rs", 1), identity_of(family="rs")
    stored = np.stack([np.full((1, 8, 8), pixel, np.uint8) for pixel in (255, 128)])
    images = images_of(5, 6, stored=stored, label=1)
    parts = []
    for part in (images.part(0, 1), images.part(1, 2)):
        ledgers = FamilyLedgers(tmp_path, identity, list(part), rs)
        parts.append(job(sampler_in_closed_form(schedule, rs), part, ledgers, SampleSize(n0=96, n=320)))
    counts = pd.concat(parts, ignore_index=True).assign(seconds=0.0)
    certified = certificates(counts, alpha=0.05, mode="fixed", bounds=["cohen", "pair"])
    found = replay_all(counts, by_bound(certified, "pair"), tmp_path, alpha=0.05)
    assert found["number"].tolist() == [5, 6]
    assert found["decided"].tolist() == [True, False]
    assert found["samples"][0] < 200
    assert np.isnan(found["samples"][1]), "nobody knows how many an open image needs"
    assert not found["differs"].any()
    assert found["margin_points"].tolist() == [100 * abs(a - b) / 320 for a, b in counts["counts_estimation"]]
    assert found["certified_by_run"].tolist() == (~by_bound(certified, "pair")["abstained"]).tolist()
    fewer = next(counts.assign(n0=40, n=100).itertuples())
    assert [len(Recorded(tmp_path)(fewer, stage)) for stage in ("selection", "estimation")] == [40, 100]
    with pytest.raises(LookupError, match=r"image 5 has 0 selection samples of rs on record"):
        replay_all(counts, by_bound(certified, "pair"), tmp_path / "nowhere", alpha=0.05)


def replayed(*images, method="adds", votes=1, sigma=0.5):
    """What `replay_all` returns of a setting; an image is its samples (None: open) and whether the run certifies it."""
    return pd.DataFrame(
        {
            "method": method,
            "sigma": sigma,
            "votes": votes,
            "number": range(len(images)),
            "samples": [np.nan if samples is None else float(samples) for samples, _ in images],
            "decided": [samples is not None for samples, _ in images],
            "margin_points": np.linspace(2, 90, len(images)),
            "certified_by_run": [certified for _, certified in images],
            "evaluations_per_sample": 20.0,
            "differs": [samples == 48 for samples, _ in images],
        }
    )


SOME = replayed((None, True), (None, False), (48, True), (24, True), (40, False))
NONE_DECIDED = replayed((None, True), (None, False), method="rs")
ALL_DECIDED = replayed((1200, True), (24, True), votes=5)


def test_samples_needed_are_of_decided_images_only(tmp_path):
    table = saving_table(pd.concat([SOME, NONE_DECIDED, ALL_DECIDED], ignore_index=True))
    cells = saving_cells(table)
    assert cells[Variant("adds", 1), 0.5] == "40 (2 of 5 open)"
    assert cells[Variant("rs", 1), 0.5] == "- (2 of 2 open)"
    assert cells[Variant("adds", 5), 0.5] == "612"
    note = saving_note(table, 0.001)
    assert "4 of 9 in all. This run's own certificates by pair certify 2 of them, from the very same samples." in note
    assert "the paper's fixed run spends 11,000" in note
    assert note.endswith("Decisions that differ from this run's: 1 of 5.")
    write(table, cells, note=note, stem=tmp_path / "savings")
    assert "**" not in (tmp_path / "savings.md").read_text()
    assert "saving" not in set(table), "a factor would need numbers for what is open"


@pytest.mark.parametrize(
    ("table", "told", "untold"), [(NONE_DECIDED, "open", "differ"), (ALL_DECIDED, "differ", "open")]
)
def test_notes_tell_only_of_what_there_is(table, told, untold):
    note = saving_note(saving_table(table), 0.001)
    assert told in note
    assert untold not in note


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ([SOME], ["open", "decided"]),
        ([ALL_DECIDED], ["decided"]),
        ([NONE_DECIDED], ["open"]),
        ([SOME, NONE_DECIDED.assign(sigma=1.0), ALL_DECIDED.assign(sigma=1.0)], ["open", "decided"]),
    ],
    ids=["some", "all", "none", "two sigmas"],
)
def test_what_is_open_is_drawn_in_a_strip_and_never_at_a_number(parts, rows, tmp_path):
    table = pd.concat(parts, ignore_index=True)
    sigmas = table["sigma"].nunique()
    with look({"font_size": 8, "dpi": 50}):
        figure = samples_needed.draw(table)
        figure.savefig(tmp_path / "figure.png")
    assert len(figure.axes) == len(rows) * sigmas
    for place, axis in enumerate(figure.axes):
        name, sigma = rows[place // sigmas], sorted(table["sigma"].unique())[place % sigmas]
        shown = table[(table["sigma"] == sigma) & (table["decided"] == (name == "decided"))]
        points = np.concatenate([line.get_xydata() for line in axis.lines])
        assert sorted(points[:, 0]) == sorted(shown["margin_points"])
        if name == "decided":
            assert sorted(points[:, 1]) == sorted(shown["samples"])
        else:
            assert (points[:, 1] <= 0).all()
            labels = [label.get_text() for label in axis.get_yticklabels()]
            assert labels == ([] if place % sigmas else ["open"])


def test_variants_can_be_told_apart_without_colours():
    variants = [(name, votes) for name in METHODS for votes in (1, 5, 7)]
    table = pd.concat([replayed((24, True), method=name, votes=votes) for name, votes in variants])
    with look({"font_size": 8, "dpi": 50}):
        lines = samples_needed.draw(table).axes[0].lines
    assert len({(line.get_marker(), line.get_fillstyle()) for line in lines}) == len(variants)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (SOME, "decide 3 of 5 points, whose median is 40 samples. They leave 2 open"),
        (NONE_DECIDED, "decide 0 of 2 points. They leave 2 open"),
        (ALL_DECIDED, "decide all 2 points; their median is 612 samples."),
    ],
    ids=["some", "none", "all"],
)
def test_the_caption_of_samples_needed_counts_what_is_shown(table, told):
    text = samples_needed.caption(table, 0.001)
    assert told in text
    assert "at alpha = 0.001" in text
    assert ("certify 1 of the open ones, from the very same samples" in text) == (not table["decided"].all())


@pytest.mark.parametrize(
    ("images", "stopped", "told"),
    [
        ([(0, 1, 2, 3), (0, 1, 2, 3)], "fixed", "PARTIAL: cells rest on 4 of 6 images. "),
        ([(0, 1), (0, 1, 2, 3)], "fixed", "PARTIAL: cells rest on 2 to 4 of 6 images, not the same everywhere. "),
        ([(0, 1), (2, 3)], "fixed", "PARTIAL: cells rest on 2 of 6 images, not the same everywhere. "),
        (
            [(0, 1), (0, 1)],
            "answered",
            "PARTIAL: cells rest on 2 of 6 images, and sequential sampling finishes easy ones first. ",
        ),
    ],
)
def test_partial_results_say_what_is_so(images, stopped, told):
    rows = [
        {"method": "adds", "sigma": 0.5, "votes": votes, "number": number, "stopped": stopped}
        for votes, numbers in enumerate(images, start=1)
        for number in numbers
    ]
    assert partial_mark(pd.DataFrame(rows), 6) == told
    assert partial_mark(pd.DataFrame(rows), None) == ""
