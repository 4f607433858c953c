"""That `make demo` leaves what the documents print (`make check-demo`), up to rounding on other processors."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

PROJECT = Path(__file__).parents[1]
RESULTS = PROJECT / "results/digits"
TABLES = ("README.md", "docs/demo.md", "docs/demo.md", "docs/demo.md")
NAMES = ("certified_accuracy", "clean_accuracy", "true_class_probability", "bounds")
DOCUMENTED = "CPU AMD EPYC", "AVX512"
"""The processor that the documents' numbers are of, and its instructions. On another kind networks round otherwise."""
POINTS, VERDICTS = 1.2, 1
"""What may differ there: two of 180 images, which is more than any mean of probabilities moves, and a verdict."""

pytestmark = [pytest.mark.demo, pytest.mark.skipif(not (RESULTS / "tables").exists(), reason="run `make demo` first")]


@pytest.fixture(scope="module")
def elsewhere():
    """Whether the run was on another kind of processor."""
    devices = json.loads((RESULTS / "provenance.json").read_text())["devices"]
    return (*devices, torch.backends.cpu.get_cpu_capability()) != DOCUMENTED


def first_numbers(text):
    """Return a table's first number of every cell, by the row's title; a cell of two bounds has two."""
    rows = (line.replace("**", "").strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    return {row[0]: [re.findall(r"^[\d.]+|(?<=→ )[\d.]+", cell)[:2] for cell in row[1:]] for row in rows}


def tables_of(document):
    """Return the tables by sigma of a document, in its order."""
    return re.findall(r"(?:^\| sigma \| 0\.4 .*\n)(?:^\|.*\n)+", (PROJECT / document).read_text(), re.MULTILINE)


@pytest.mark.parametrize(("document", "place", "name"), list(zip(TABLES, (0, 0, 1, 2), NAMES, strict=True)))
def test_tables_are_those_of_the_documents(document, place, name, elsewhere):
    printed = first_numbers(tables_of(document)[place])
    found = first_numbers((RESULTS / f"tables/{name}.md").read_text())
    assert list(printed) == list(found)
    assert len(printed) == 10
    for title, cells in printed.items():
        for cell, other in zip(cells, found[title], strict=True):
            assert cell
            numbers = [float(number) for number in cell]
            assert [float(number) for number in other] == pytest.approx(numbers, abs=POINTS if elsewhere else 0.01)


def test_verdicts_are_those_of_the_documents(elsewhere):
    found = pd.read_csv(RESULTS / "tables/claims.csv").groupby("claim")["claim_verdict"].first().value_counts()
    readme, document = ((PROJECT / name).read_text().replace("\n", " ") for name in ("README.md", "docs/claims.md"))
    told = re.search(r"(\d+) of the paper's 22 claims hold, (\d+) are contradicted and (\d+) stay undecided", readme)
    assert "**{} claims hold, {} are contradicted, {} are undecided**".format(*told.groups()) in document
    for count, verdict in zip(map(int, told.groups()), ("holds", "contradicted", "undecided"), strict=True):
        assert abs(found.get(verdict, 0) - count) <= (VERDICTS if elsewhere else 0), verdict
