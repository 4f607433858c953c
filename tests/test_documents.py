"""That documents agree with the code and with each other: the example, links, keys, pins of the tools."""

import doctest
import re
from pathlib import Path

import pytest
import yaml

import adds
from tests.key_table import table
from tests.test_experiment import configured, merged, understood

PROJECT = Path(__file__).parents[1]
PLACES = (
    "*.md",
    "docs/*.md",
    "docs/fashion/*.md",
    "config/*.md",
    "results/*.md",
    "weights/*.md",
    "tests/soundness/*.md",
)
DOCUMENTS = sorted(path for place in PLACES for path in PROJECT.glob(place))


def test_the_example_of_the_package_runs(monkeypatch):
    """The ten lines in the package's docstring."""
    monkeypatch.chdir(PROJECT)
    found = doctest.testmod(adds, optionflags=doctest.ELLIPSIS)
    assert found.attempted >= 9
    assert found.failed == 0


def test_the_readme_shows_the_example_of_the_package():
    examples = doctest.DocTestParser().get_examples(adds.__doc__)
    shown = re.search(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)[1]
    code, _, result = shown.partition("# Certificate")
    assert code.replace("\n\n", "\n") == "".join(example.source for example in examples)
    checker = doctest.OutputChecker()
    assert code.rstrip().splitlines()[-1].startswith("print("), "as a script it shows what it found"
    wanted = examples[-1].want
    assert checker.check_output(wanted, f"Certificate{result}", doctest.ELLIPSIS)


def anchors_of(document):
    """Return what GitHub names the headings of a document."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(PROJECT).as_posix())
def test_links_lead_somewhere(document):
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target), link


def test_the_readme_and_the_map_know_every_document():
    for name in ("README.md", "docs/map.md"):
        known = (PROJECT / name).parent
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", (PROJECT / name).read_text())
        linked = {(known / link).resolve() for link in links if not link.startswith("http")}
        missing = set((PROJECT / "docs").glob("*.md")) - linked - {PROJECT / name}
        assert not missing, f"{name} doesn't name {sorted(path.name for path in missing)}"


def cells_of(document):
    """Return the rows of a document's tables, without their headings."""
    lines = (line for line in document.read_text().splitlines() if line.startswith("| "))
    return [line.strip("| ").split(" | ") for line in lines]


def test_every_key_is_documented_with_its_default_and_what_is_allowed():
    shown = {row[0]: row[1:] for row in cells_of(PROJECT / "config/README.md") if row[0].startswith("`")}
    expected = {f"`{key}`": cells for key, cells in table().items()}
    assert list(shown) == sorted(expected, key=list(shown).index)
    for key, cells in expected.items():
        assert tuple(shown[key][:2]) == cells, f"{key}: python -m tests.key_table prints what must stand there"


@pytest.mark.parametrize("name", ["config/README.md", "docs/pitfalls.md", "docs/artifact.md", "docs/results.md"])
def test_no_cell_is_a_paragraph(name):
    longest = max((cell for row in cells_of(PROJECT / name) for cell in row), key=lambda cell: len(cell.split()))
    assert len(longest.split()) <= 40, longest


@pytest.mark.parametrize(("document", "name"), [("README.md", "digits"), ("config/README.md", None)])
def test_the_configuration_that_a_document_shows_is_understood(document, name):
    shown = re.search(r"```yaml\n(.*?)```", (PROJECT / document).read_text(), re.DOTALL)[1]
    config = configured(name) if name else configured()
    assert understood(merged(config, yaml.safe_load(shown))).name == "mine"


def test_hooks_before_a_commit_are_the_tools_of_make_lint():
    makefile = (PROJECT / "Makefile").read_text()
    recipe = makefile.partition("\nlint:")[2].partition("\n\n")[0]
    recipe = recipe.replace("$(CHECK_FORM)", "$(VENV)/bin/check-jsonschema").replace("$(VENV)", ".venv")
    [repository] = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]:
        command = hook["entry"].removesuffix(" --force-exclude")
        assert re.search(rf"{re.escape(command)}\b", recipe), hook["id"]


def test_the_citation_names_the_paper():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    [paper] = citation["references"]
    readme = (PROJECT / "README.md").read_text()
    assert paper["url"] in readme.split("\n## ")[0]
    number = paper["url"].rsplit("/", 1)[1]
    assert f"eprint        = {{{number}}}" in readme
    plain = readme.replace(r"{\'e}", "é").replace(r"{\"e}", "ë")
    assert all(f"{author['family-names']}, {author['given-names']}" in plain for author in paper["authors"])
