"""Every command that a document prints works as printed, or would run: a dry run where it would take long."""

import ast
import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.workflow import PROJECT, run_in, snakemake

pytestmark = pytest.mark.workflow

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}|<|\{\w+\}|\.\.\.")
SHELL = ("console", "bash", "sh", "shell")
NAMED = re.compile(r"# ([\w/]+\.\w+)(?:, for: (.*))?\n")
"""A block's first line that says which file it is, and perhaps for which command."""
MAKEFILE = (PROJECT / "Makefile").read_text()

TELLING = {"estimate", "why"}
"""Targets that take seconds, and change nothing."""
QUICK = {"adds.monitor.status", "adds.monitor.ledgers", "adds.data.files", "adds.results.claims.published"}
"""Modules that take seconds."""
PASSING_ON = "adds.monitor.series"
"""It hands over to Snakemake what it doesn't know itself."""


def documents() -> list[Path]:
    """All that tell of the present; the changelog names commands that are gone."""
    found = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md"), *PROJECT.glob("*/README.md")]
    return sorted(path for path in {*found, PROJECT / "tests/soundness/README.md"} if path.name != "CHANGELOG.md")


def docstrings() -> str:
    """Return the modules' docstrings as a document, in which commands stand in single quotes."""
    paths = sorted([*PROJECT.glob("studies/*.py"), *PROJECT.glob("src/adds/**/*.py")])
    texts = (ast.get_docstring(ast.parse(path.read_text())) or "" for path in paths)
    indented = re.compile(r"^    ((?:python|snakemake|make) \S+(?: \S+)*)", re.MULTILINE)
    return "\n\n".join(indented.sub(r"`\1`", text.replace("``", "`")) for text in texts)


def commands_of(text: str) -> Iterator[str]:
    """All commands of a document in their order: in blocks, above blocks that are files, and within sentences.

    Within sentences those are meant that have at least two words and no placeholder; a module alone is only mentioned.
    """
    end = 0
    for block in FENCED.finditer(text):
        yield from _in_sentences(text[end : block.start()])
        kind, content, end = block[2], block[3], block.end()
        if kind in SHELL:
            lines = content.replace("\\\n", " ").splitlines()
            yield from (
                line.strip().removeprefix("$ ") for line in lines if line.strip(" #") and line.strip()[0] != "#"
            )
        elif (named := NAMED.match(content)) and named[2]:
            yield named[2]
    yield from _in_sentences(text[end:])


def _in_sentences(text: str) -> Iterator[str]:
    for span in SPAN.findall(text):
        words = " ".join(span.split())
        if words.partition(" ")[0] in TREATMENTS and " " in words and not PLACEHOLDER.search(words):
            yield f"{words} --help" if re.fullmatch(r"python -m \S+", words) else words


def files_of(text: str) -> dict[str, str]:
    """The files that a document shows."""
    blocks = (block[3] for block in FENCED.finditer(text))
    return {named[1]: content for content in blocks if (named := NAMED.match(content))}


def try_make(_: Path, *words: str) -> str | None:
    """Look the targets up: they set up environments, or run these very tests."""
    for word in words:
        name, variable, _ = word.partition("=")
        if not re.search(rf"^{name} *\?=" if variable else rf"^{name}:", MAKEFILE, re.MULTILINE):
            return f"the Makefile has no {name}"
    return None


def try_source(_: Path, script: str) -> str | None:
    made = re.search(r"^VENV := (\S+)$", MAKEFILE, re.MULTILINE)
    return None if made and script == f"{made[1]}/bin/activate" else f"make setup doesn't make {script}"


def try_snakemake(folder: Path, *words: str) -> str | None:
    done = snakemake(folder, *words, *([] if TELLING & set(words) else ["--dry-run"]))
    return None if done.returncode == 0 else done.stdout + done.stderr


def try_python(folder: Path, *words: str) -> str | None:
    """Run a module, if it takes seconds; otherwise see that it is there and that its help knows every option."""
    flag, module, *arguments = words
    if flag != "-m":
        return "no module"
    if module == "pytest":
        return try_pytest(folder, *arguments)
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return f"there is no module {module}"
    output = None
    if ">" in arguments:
        (*arguments, _, output) = arguments
    if module in QUICK:
        done = run_in(folder, sys.executable, "-m", module, *arguments)
    elif "argparse" in Path(found.origin).read_text():
        if lacking := try_files(folder, *arguments):
            return lacking
        done = run_in(PROJECT, sys.executable, "-m", module, "--help")
        known = done.stdout + (snakemake(folder, "--help").stdout if module == PASSING_ON else "")
        if unknown := [word for word in arguments if word.startswith("--") and not mentions(known, word)]:
            return f"{module} doesn't know {', '.join(unknown)}"
    else:
        return None if arguments in ([], ["--help"]) else f"{module} takes no arguments"
    if output:
        (folder / output).write_text(done.stdout)
    return None if done.returncode == 0 else done.stderr


def mentions(text: str, option: str) -> bool:
    """Tell whether a help text has an option, as a whole word and whatever follows its "="."""
    return re.search(rf"(?<![\w-]){re.escape(option.partition('=')[0])}(?![\w-])", text) is not None


def try_pytest(_: Path, *words: str) -> str | None:
    options = [word for word in words if word not in ("-n", "auto")]
    done = run_in(PROJECT, sys.executable, "-m", "pytest", "--collect-only", "--quiet", *options)
    return None if done.returncode == 0 else done.stdout


def try_files(folder: Path, *words: str) -> str | None:
    """Of what needs a network, or leaves this folder, see that the files are there that it reads."""
    for before, word in zip(("", *words), words, strict=False):
        elsewhere = before in ("--output", "-o") or "://" in word or word.startswith(("~", "/"))
        if not elsewhere and "/" in word and not (folder / word).exists():
            return f"there is no {word}"
    return None


TREATMENTS: dict[str, Callable[..., str | None]] = {
    "make": try_make,
    "source": try_source,
    "snakemake": try_snakemake,
    "python": try_python,
    ".venv/bin/python": try_python,
    "python3": try_python,
    "pytest": try_pytest,
    "pip": try_files,
    "~/uv/bin/pip": try_files,
    "uv": try_files,
    "git": try_files,
    "cd": try_files,
    "pre-commit": try_files,
    "snakedeploy": try_files,
}
"""What is tried of a command, by its first word; it says what is wrong, or None."""


def failures(folder: Path, text: str) -> list[str]:
    """Try all commands of a document, in their order; say which don't work."""
    for name, content in files_of(text).items():
        (folder / name).write_text(content)
    found = []
    for command in dict.fromkeys(commands_of(text)):
        for part in command.split(" && "):
            program, *words = shlex.split(part, comments=True)
            treatment = TREATMENTS.get(program)
            problem = treatment(folder, *words) if treatment else f"no test knows what to do with {program}"
            found += [f"{command}\n    {problem}"] if problem else []
    return found


@pytest.fixture
def visited(finished, tmp_path) -> Path:
    """Return the folder of a user who has done what documents take for granted.

    There are results, a run of the paper was begun, and there are images and weights of the user's own. Experiments
    have few images, so that they are planned in a second.
    """
    folder = shutil.copytree(finished, tmp_path / "run", symlinks=True)
    for path in (folder / "config").glob("*.yaml"):
        path.write_text(re.sub(r"(?m)(^ *|\{)images: \d+", r"\1images: 2", path.read_text()))
    counts = "counts/carlini/sigma1.0/votes1/00000.parquet"
    (folder / "results/imagenet" / counts).parent.mkdir(parents=True)
    shutil.copy(folder / "results/digits" / counts, folder / "results/imagenet" / counts)
    for kind in ("cats", "dogs"):
        (folder / "pictures" / kind).mkdir(parents=True)
        Image.fromarray(np.zeros((32, 32), np.uint8)).save(folder / "pictures" / kind / "1.png")
    (folder / "mine.safetensors").touch()
    (folder / "val").mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(PROJECT / name, folder)
    shutil.copytree(PROJECT / "docs/fashion", folder / "docs/fashion")
    shutil.copytree(PROJECT / "weights/fashion", folder / "weights/fashion", dirs_exist_ok=True)
    (folder / "results/design").mkdir()
    return folder


PRINTING = [path for path in documents() if list(commands_of(path.read_text()))]


@pytest.mark.parametrize("document", PRINTING, ids=lambda path: str(path.relative_to(PROJECT)))
def test_commands_work_as_printed(document, visited):
    assert not failures(visited, document.read_text())


def test_commands_of_docstrings_work_as_printed(visited):
    text = docstrings()
    assert "python -m studies.held_out weights/fashion" in "".join(commands_of(text))
    assert not failures(visited, text)


FAILING = """
```console
snakemake --cores all --configfile config/nowhere.yaml
make nothing
source venv/bin/activate
python -m adds.nothing
$ python -m adds.data.files paintings > mine.csv
frobnicate --all
snakemake --cores all --config device=gpu  # a comment
pip install -r envs/nothing.lock
python -m studies.attacks --only-reprot
python -m adds.monitor.series config/sweep.yaml --coers all
source .venv/bin/activate && make something
```
Also `pytest tests/test_nothing.py` and `snakemake nothing`, but neither `snakemake FILE` nor `frobnicate it`.
"""


def test_commands_that_fail_are_noticed(visited):
    found = failures(visited, FAILING)
    assert len(found) == 13
    assert "no test knows what to do with frobnicate" in found[5]


def test_files_that_a_document_shows_are_read(visited):
    shown = "```yaml\n# mine.yaml, for: snakemake --configfile config/digits.yaml mine.yaml\nsigma: 1\n```\n"
    (found,) = failures(visited, shown)
    assert "sigma: there is no such key, did you mean `sigmas`?" in found
