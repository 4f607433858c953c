"""What Fashion-MNIST's first images suggested, on others: the page's tables are made of its counts, which are whole."""

import numpy as np
import pandas as pd
import pytest
from studies.confirm import ADDS, CARLINI, CLEAN, FIRST, STATEMENTS, Statement, lines, of_classes, read, verdicts

from adds.results.claims.paired import of_means
from tests.workflow import PROJECT

OTHERS = tuple(PROJECT / f"docs/fashion/{name}.parquet" for name in ("counts_confirm", "counts_confirm_tuned"))


@pytest.fixture(scope="module")
def first():
    return read(*(PROJECT / path for path in FIRST))


@pytest.fixture(scope="module")
def others():
    return read(*OTHERS)


def test_the_pages_tables_are_made_of_its_counts(first, others):
    names = pd.read_csv(PROJECT / "config/fashion_classes.csv").sort_values("label")["name"]
    text = (PROJECT / "docs/fashion.md").read_text()
    assert "\n".join(lines(first, others)) in text
    assert "\n".join(of_classes(others, names)) in (PROJECT / "docs/fashion/tables.md").read_text()


def test_the_others_are_those_of_the_list_and_none_of_the_first(first, others):
    listed = pd.read_csv(PROJECT / "config/fashion_1000.csv")
    assert set(others.index.get_level_values("number")) == set(listed["number"])
    assert not set(others.index.get_level_values("number")) & set(first.index.get_level_values("number"))
    assert others.index.get_level_values("label").value_counts().tolist() == [100] * 10


def test_a_missing_row_is_an_error(tmp_path):
    counts = pd.read_parquet(OTHERS[0])
    one = (counts["method"] == "carlini") & (counts["number"] == counts["number"].iloc[0])
    counts[~one].to_parquet(tmp_path / "counts.parquet")
    lacking = read(tmp_path / "counts.parquet", OTHERS[1])
    with pytest.raises(ValueError, match=r"1 of 1000 images have no difference"):
        list(lines(lacking, lacking))


def frame(lead):
    """1,000 images of ten classes, with so many points of lead of ADDS over Carlini et al."""
    noise = np.random.default_rng(0).normal(0, 0.2, 1000)
    noise -= noise.mean()
    index = pd.MultiIndex.from_arrays([range(1000), np.arange(1000) % 10], names=["number", "label"])
    values = {("p_true", CLEAN, *CARLINI): 0.5, ("p_true", CLEAN, *ADDS): 0.5 + noise + lead}
    return pd.DataFrame(values, index=index)


@pytest.mark.parametrize(("lead", "verdict"), [(0.05, "confirmed"), (-0.05, "contradicted"), (0.001, "open")])
def test_statements_are_confirmed_contradicted_or_open(lead, verdict):
    statement = STATEMENTS[0]
    differences = statement.differences(frame(lead=lead))
    found = of_means(differences, statement.test, statement.margin, largest=1.0)
    assert [told for told, _ in verdicts([found] * 9)] == [verdict] * 9
    assert np.mean(differences) == pytest.approx(lead)


def test_a_lead_may_be_taken_off_and_classes_chosen():
    both = frame(lead=0.1)
    pair = ((ADDS, CLEAN), (CARLINI, CLEAN))
    assert np.allclose(Statement("", pair, "less", without=pair).differences(both), 0)
    assert len(Statement("", pair, "more", classes=frozenset({5})).differences(both)) == 100
