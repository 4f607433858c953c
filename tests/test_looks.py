"""Who has looked at which samples: nothing is forgotten, nobody is blamed for samples of other images."""

import pandas as pd
import pytest

from adds.monitor.looks import look_of, note, others
from adds.results.report import looked
from tests.test_experiment import digits

CERTIFIED = pd.DataFrame({"identity": ["a", "a", "b"], "number": [1, 2, 1]})
SEQUENTIAL = {"mode": "sequential", "stop": {"questions": [{"bound": "cohen", "radius": 0.0}]}}


def look(certified=CERTIFIED, **changes):
    return look_of(digits(**changes).look(), certified)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": {"n": 24}},
        {"bound": "pair"},
        {"sampling": {"alpha": 0.01}},
        {"sampling": SEQUENTIAL},
    ],
)
def test_another_choice_for_the_same_samples_is_another_look(tmp_path, changes):
    note(look(), tmp_path)
    assert others(look(), tmp_path) == []
    (found,) = others(look(**changes), tmp_path)
    assert (found["mode"], found["n"], found["bound"], found["alpha"]) == ("fixed", 12, "cohen", 0.05)
    assert "with n = 12, bound cohen, alpha = 0.05 too (digits, 20" in looked(found)
    note(look(**changes), tmp_path)
    (found,) = others(look(), tmp_path)
    assert f"n = {look(**changes)['n']}, bound {look(**changes)['bound']}" in looked(found)


def test_the_questions_of_sequential_sampling_are_told(tmp_path):
    asked = {"mode": "sequential", "stop": {"questions": [{"bound": "pair", "radius": 0.1}]}}
    note(look(sampling=asked), tmp_path)
    (found,) = others(look(), tmp_path)
    assert 'certified with at most n = 12, bound cohen, alpha = 0.05, questions [{"bound": "pair"' in looked(found)


def test_n_alone_may_be_raised_where_bounds_hold_for_all_n_at_once(tmp_path):
    note(look(sampling={**SEQUENTIAL, "n": 12}), tmp_path)
    assert others(look(sampling={**SEQUENTIAL, "n": 24}), tmp_path) == []
    note(look(sampling={**SEQUENTIAL, "n": 24}), tmp_path)
    (found,) = others(look(sampling={**SEQUENTIAL, "n": 24}, bound="pair"), tmp_path)
    assert (found["n"], found["bound"]) == (12, "cohen"), "one way, told once"


def test_raising_n_of_a_question_about_labels_is_another_look(tmp_path):
    labels = {"mode": "sequential", "stop": {"questions": [{"label": "majority"}]}}
    note(look(sampling={**labels, "n": 12}, bound="label"), tmp_path)
    (found,) = others(look(sampling={**labels, "n": 24}, bound="label"), tmp_path)
    assert found["n"] == 12


def test_other_samples_have_not_been_looked_at(tmp_path):
    note(look(), tmp_path)
    for column, values in (("identity", ["c", "d", "d"]), ("number", [3, 4, 3])):
        assert others(look(CERTIFIED.assign(**{column: values}), bound="pair"), tmp_path) == []
    assert len(others(look(CERTIFIED.iloc[:1], bound="pair"), tmp_path)) == 1, "some of the images"


def test_the_same_look_again_is_told_once_with_its_first_date(tmp_path):
    note(look(), tmp_path)
    (path,) = tmp_path.glob("looks/*.json")
    path.write_text(path.read_text().replace('"date": "20', '"date": "19'))
    note(look(), tmp_path)
    note(look(experiment="again"), tmp_path)
    note(look(CERTIFIED.iloc[:1]), tmp_path)  # a partial one
    (found,) = others(look(bound="pair"), tmp_path)
    assert found["date"].startswith("19")
    assert found["experiment"] == "digits"
