"""A run as people watch it: few lines, errors in full, one line after Ctrl-C; and the summary at its end."""

import io
import itertools
import json
import logging
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import setuptools
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from adds.machine.logs import WATCHED
from adds.monitor import watch
from adds.monitor.summary import accuracy_cell, aligned, note, paired_cell, summary
from adds.monitor.watch import SILENT, WORK, Captured, Run, Screen, kind_of, last_words
from snakemake_logger_plugin_adds import LogHandler
from tests.workflow import PROJECT, command, merged, run, run_in, run_in_terminal

MOST_LINES = 60
WATCHED_BY_US = ("--logger", "adds")


def test_snakemake_finds_the_plugin_wherever_the_package_is_installed():
    assert LoggerPluginRegistry().is_installed("adds")
    assert "snakemake_logger_plugin_adds" in setuptools.find_packages(PROJECT / "src")


def test_the_plugin_is_light():
    """Snakemake imports it at every start, also of jobs that nobody watches."""
    code = (
        "import sys, snakemake_logger_plugin_adds; sys.exit(any(x in sys.modules for x in ('pandas', 'torch', 'adds')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_profile_names_the_plugin():
    """It would fail where the package isn't installed beside Snakemake."""
    for profile in (PROJECT / "profiles").rglob("*.yaml"):
        assert "logger" not in profile.read_text()


def test_every_rule_says_what_it_does():
    files = [PROJECT / "Snakefile", *(PROJECT / "workflow/rules").glob("*.smk")]
    rules = {name for file in files for name in re.findall(r"^ *rule (\w+):", file.read_text(), re.MULTILINE)}
    named = {rule for rules in WORK.values() for rule in rules} | set(SILENT)
    by_hand = {"estimate", "why", "audit", "check"}  # asked for alone, and they print what they have to say
    assert {rule for rule in rules - by_hand if not rule.endswith("_figure")} <= named
    assert len({kind_of(rule) for rule in rules - by_hand - set(SILENT)}) == len(WORK)
    assert kind_of("loss_figure") == kind_of("explorer")
    assert kind_of("a_rule_of_mine") == "a rule of mine"


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def fileno(self):
        return 1


def test_on_a_terminal_progress_stays_below(monkeypatch):
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((12, 5)))
    terminal = Terminal()
    screen = Screen(terminal)
    screen.progress("1 of 3 and a lot more")
    screen.show("a warning")
    screen.progress("")
    assert terminal.getvalue() == "\r\x1b[K1 of 3 and \r\x1b[Ka warning\n1 of 3 and \r\x1b[K"


def test_elsewhere_progress_is_written_ever_more_rarely(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    file = io.StringIO()
    screen = Screen(file)
    written = []
    for second in range(0, 3 * 24 * 3600, 5):
        now[0] = float(second)
        before = len(file.getvalue())
        screen.progress(f"after {second} s")
        written += [second] if len(file.getvalue()) > before else []
    assert written[:4] == [30, 60, 90, 120]
    assert "\x1b" not in file.getvalue()
    pauses = [after - before for before, after in itertools.pairwise(written)]
    assert max(pauses) == 600
    assert sum(second < 600 for second in written) < 15


def test_a_log_is_shown_from_its_last_error_on():
    lines = [f"2026-01-01 00:00:0{n} DEBUG certify: image {n}" for n in range(9)] * 4
    assert last_words("\n".join(lines)) == lines[-20:]
    error = ["2026-01-01 00:00:09 CRITICAL certify: ValueError: no", "Traceback", *(f"  line {n}" for n in range(50))]
    assert last_words("\n".join([*lines, *error])) == error


def test_what_jobs_write_is_passed_on_in_whole_lines(capfd):
    shown = []
    captured = Captured(shown.append)
    try:
        code = "import sys; sys.stderr.write('half'); sys.stderr.flush(); sys.stderr.write(' a line\\n'); 1 / 0"
        subprocess.run([sys.executable, "-c", code], check=False)
        code = "raise KeyboardInterrupt"
        subprocess.run([sys.executable, "-c", code], check=False)
    finally:
        captured.release()
    assert shown[0] == "half a line"
    assert shown[1].startswith("Traceback (most recent call last):\n  File")
    assert shown[1].endswith("ZeroDivisionError: division by zero")
    assert shown[2:] == []
    os.write(2, b"as before\n")
    assert capfd.readouterr().err == "as before\n"


def test_what_is_said_again_and_again_is_shown_once(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(watch, "Captured", lambda _: SimpleNamespace(terminal=terminal))
    shown = watch.Watch()
    for text in ("will exit", "will exit", "a warning", "will exit"):
        shown.show(text)
    assert terminal.getvalue().splitlines() == ["will exit", "a warning", "will exit"]


def test_a_watched_job_warns_on_the_terminal_and_logs_the_rest(tmp_path):
    code = (
        "import logging, sys; from adds.machine.logs import configure_logging; configure_logging(sys.argv[1], 'job')\n"
        "log = logging.getLogger('adds.x'); log.debug('image'); log.info('start'); log.warning('careful')\n"
        "import warnings; warnings.warn('old', FutureWarning); warnings.warn('odd'); 1 / 0"
    )
    seen = {}
    for value in ("", os.uname().nodename, "another machine"):
        log = tmp_path / f"{value or 'none'}.log"
        environment = {**os.environ, WATCHED: value}
        seen[value] = run_in(tmp_path, sys.executable, "-c", code, log, environment=environment).stderr
        assert all(
            word in log.read_text() for word in ("image", "start", "careful", "old", "CRITICAL", "ZeroDivisionError")
        )
    for plain in (seen[""], seen["another machine"]):
        assert "start" in plain
        assert "image" not in plain
        assert "ZeroDivisionError" in plain
    text = seen[os.uname().nodename]
    assert "careful" in text
    assert "odd" in text
    assert not any(word in text for word in ("old", "start", "image", "ZeroDivisionError"))


def test_how_much_there_is_to_certify(tmp_path):
    settings = [
        {"method": "adds", "votes": votes, "sigma": sigma, "leads": votes == 5}
        for votes in (1, 5)
        for sigma in ("0.5", "1.0")
    ]
    plan = {"settings": settings, "shards": {"00000": 1}, "n0": 10, "n": 1000, "mode": "fixed"}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert Run(tmp_path, tmp_path).size() == "1 image with 2 methods at 2 noise levels: 2,020 samples"
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "mode": "sequential"}))
    assert Run(tmp_path, tmp_path).size().endswith(": at most 2,020 samples")


ROW = {"method": "adds", "votes": "5", "sigma": "0.6", "images": "24"}
ACCURACY = {**ROW, "accuracy_percent": "95.83", "low_percent": "78.88", "high_percent": "99.89"}
PAIRED = {**ROW, "mean_percent": "53.46", "difference_points": "-5.64"}
ENDS = {"difference_low_points": "-7.89", "difference_high_points": "-3.39"}


class TestSummary:
    def test_cells(self):
        assert accuracy_cell(ACCURACY) == "95.8 [78, 100]"
        assert accuracy_cell({**ACCURACY, "paper_percent": "46.8"}) == "95.8 [78, 100] paper 46.8"
        assert paired_cell({**PAIRED, **ENDS}) == "53.5 -5.6±2.2"
        for none in ("", "0.0"):
            ends = {"difference_low_points": none, "difference_high_points": none}
            assert paired_cell({**PAIRED, **ends}) == "53.5"

    def test_columns_are_aligned(self):
        rows = [ACCURACY, {**ACCURACY, "method": "rs", "votes": "1", "sigma": "1.5"}]
        assert aligned(rows, "Table", accuracy_cell) == [
            "Table                 sigma 0.6       sigma 1.5",
            "RS, clean classifier  -               95.8 [78, 100]",
            "ADDS, 5 votes         95.8 [78, 100]  -",
        ]

    def test_notes(self):
        reference = {**PAIRED, "difference_low_points": "0.0", "difference_high_points": "0.0"}
        assert note([ACCURACY], [reference, {**PAIRED, **ENDS}]) == (
            "24 images; [95% interval]; ± 95% of the paired difference to ADDS, 5 votes"
        )
        partial = [ACCURACY, {**ACCURACY, "images": "3"}]
        assert note(partial, [], 30) == "PARTIAL: 3 to 24 of 30 images; [95% interval]"
        assert note([ACCURACY], [], 30) == "PARTIAL: 24 of 30 images; [95% interval]"

    def test_undecided_claims_are_only_counted_and_other_looks_are_told(self, tmp_path):
        claims = tmp_path / "tables/claims.md"
        claims.parent.mkdir()
        claims.write_text("1 holds, 0 contradicted, 1 undecided.\n\n| ... |\n")
        claims.with_suffix(".csv").write_text(
            "claim,claim_verdict,text\na,holds,Voting takes time.\nb,undecided,Who knows.\na,holds,Voting takes time.\n"
        )
        provenance = tmp_path / "provenance.json"
        looks = [{"mode": "fixed", "n": 12, "bound": "cohen"}, {"mode": "sequential", "n": 1000, "bound": "pair"}]
        provenance.write_text(json.dumps({"other_looks": [*looks, looks[0]]}))
        places = ["report.html", "tables/"]
        text = summary(tmp_path, tmp_path, tmp_path, places, provenance=provenance, claims=claims)
        assert text.splitlines() == [
            f"The paper's claims: 1 holds, 0 contradicted, 1 undecided (why: {claims})",
            "  holds         Voting takes time.",
            "",
            "These samples were also certified with n = 12, bound cohen; at most n = 1,000, bound pair: "
            f"see {provenance} and docs/pitfalls.md.",
            f"Results are in {tmp_path}/: report.html, tables/",
        ]


@pytest.mark.workflow
class TestRuns:
    def test_a_whole_run_without_a_terminal(self, finished):
        """The one that all tests of the workflow share, from images to report."""
        text = (finished / "terminal.txt").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("Using workflow specific profile")]
        assert len(lines) < MOST_LINES
        assert "\x1b" not in text
        for kind in WORK:
            assert sum(line.startswith(kind) for line in lines) == 1, kind
        assert "certifying 4 images with 5 methods at 2 noise levels: 384 samples" in lines
        assert re.search(r"^\d+ jobs done in \d+ (s|min)$", text, re.MULTILINE)
        assert lines[-1].startswith("Results are in results/digits/: report.html, explorer.html, ")
        assert "image" in (finished / "logs/digits/certify/adds/sigma0.5/votes5/00000.log").read_text()

    def test_the_end_of_a_run_on_a_terminal(self, rerun):
        status, lines = run_in_terminal(rerun, *command(rerun, "--forcerun", "merge", *WATCHED_BY_US), columns=80)
        assert status == 0
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines[1:])) <= 100
        assert not any(re.search(r"\d of \d+ jobs", line) for line in lines), "progress was taken off the terminal"
        assert lines[-1].startswith("Results are in results/digits/: report.html")

    def test_nothing_to_do_and_dry_runs_say_so(self, finished):
        done = run(finished, *WATCHED_BY_US)
        assert "Nothing to be done" in done.stderr
        dry = [run(finished, "--dry-run", *watched, sampling={"n": 16}) for watched in ((), WATCHED_BY_US)]
        plain, ours = (
            re.sub(r"(Date|Workflow ID|Command): .*|\d\d:\d\d:\d\d", "", done.stdout + done.stderr) for done in dry
        )
        assert sorted(plain.split()) == sorted(ours.split())

    def test_errors_are_shown_in_full_and_once(self, rerun):
        (rerun / "results/digits/counts/carlini/sigma0.5/votes1/00000.parquet").write_bytes(b"not a parquet file")
        done = run(rerun, "results/digits/counts.parquet", *WATCHED_BY_US)
        assert done.returncode != 0
        assert done.stderr.count("CRITICAL merge: ValueError") == 1
        assert re.search(r"^ +ValueError: .*00000.parquet is not a counts file", done.stderr, re.MULTILINE)
        assert "(its log: logs/digits/merge.log)" in done.stderr
        assert "Complete log(s): " in done.stderr
        assert "returned non-zero exit status 1" in done.stderr

    def test_a_bad_configuration_is_shown_before_anything_runs(self, finished):
        done = run(finished, *WATCHED_BY_US, sampling={"nn": 5})
        assert done.returncode != 0
        assert "sampling.nn: there is no such key" in done.stderr


TARGET = "results/digits/counts/adds/sigma0.5/votes5/00000.parquet"
LONG = {"sampling": {"n": 400, "chunk_size": 8}, "seed": 3}
HOW_FAR = r"interrupted after [\d,]+ of {} samples; the same command goes on from there"


def drawn(folder, family):
    """How many samples are on record with the seed of `LONG`, which no other run has."""
    texts = (path.read_text() for path in (folder / "results/ledger").glob(f"{family}/*.jsonl"))
    found = [re.findall(r'"samples":(\d+)', text) for text in texts if '"seed":3' in text]
    return sum(int(samples) for each in found for samples in each)


def status(folder):
    return run_in(folder, sys.executable, "-m", "adds.monitor.status", "digits").stdout


@pytest.mark.workflow
def test_a_job_that_ctrl_c_ended_first_is_no_error():
    """Snakemake may hear of its end before it hears of the interrupt."""
    handler = LogHandler.__new__(LogHandler)
    handler._watch = SimpleNamespace(interrupted=False, failed=False, show=pytest.fail)
    text = "CalledProcessError in file certify.smk:\nCommand 'python certify.py' returned non-zero exit status 130."
    handler._show(logging.LogRecord("", logging.ERROR, "", 0, text, (), None))
    assert handler._watch.interrupted


@pytest.mark.workflow
class TestInterrupts:
    def test_on_a_terminal_it_is_one_line(self, rerun):
        longer = merged(LONG, {"sampling": {"n": 20_000}})  # so that no job ends before it is interrupted
        words, plan = command(rerun, *WATCHED_BY_US, **longer), rerun / "results/digits/plan.json"
        code, lines = run_in_terminal(rerun, *words, until=lambda: drawn(rerun, "*") > 40 and plan.exists())
        assert code != 0
        assert not any("Traceback" in line or "Error" in line for line in lines), lines
        assert [line for line in lines if "interrupted" in line] == lines[-1:], lines
        assert re.fullmatch(HOW_FAR.format("480,096"), lines[-1]), lines[-1]
        assert len(lines) < 12, lines
        assert re.search(r" [12] interrupted, 0 failed, ", status(rerun)), status(rerun)

    def test_without_our_plugin_the_job_says_it_and_goes_on_from_there(self, rerun):
        words = command(rerun, "results/digits/plan.json", TARGET, **LONG)
        code, lines = run_in_terminal(rerun, *words, until=lambda: drawn(rerun, "adds-sigma0.5-*") > 40)
        log = rerun / "logs/digits/certify/adds/sigma0.5/votes5/00000.log"
        assert code != 0
        for text in ("\n".join(lines), log.read_text(), status(rerun)):
            assert re.search(HOW_FAR.format(808), text)
            assert "Traceback" not in text
        assert " 1 interrupted, 0 failed, " in status(rerun)
        on_record = drawn(rerun, "adds-sigma0.5-*")
        done = run(rerun, TARGET, **LONG)
        assert done.returncode == 0, done.stderr
        assert f"going on from {on_record} of 808 samples on record" in log.read_text()
