"""The report as a person sees it: in a browser, opening on the result, with every figure beside its caption."""

import html
import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

from tests.workflow import run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--virtual-time-budget=20000",
]
PROBE = """
<script>
addEventListener("load", () => {
const found = {
  headings: [...document.querySelectorAll("h1, h2, h3")].map((one) => one.textContent),
  pictures: [...document.images].map((one) => [one.alt, one.naturalWidth, one.naturalHeight]),
  captions: [...document.querySelectorAll("figure")].map((one) => one.querySelector("figcaption").textContent),
  tables: [...document.querySelectorAll("section section table")].length,
  links: [...document.querySelectorAll("a")].map((one) => one.getAttribute("href")),
  missing: [...document.querySelectorAll('a[href^="#"]')].map((one) => one.hash.slice(1))
    .filter((name) => !document.getElementById(name)),
  result: document.getElementById("Result").textContent,
  run: document.getElementById("What-was-run").textContent,
  together: [...document.querySelectorAll("figure")].map((one) => one.getBoundingClientRect().height / innerHeight),
};
const element = document.createElement("pre");
element.id = "probe";
element.textContent = JSON.stringify(found);
document.body.append(element);
});
</script>
"""

pytestmark = pytest.mark.workflow
browser = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]


def with_marks(test):
    for mark in browser:
        test = mark(test)
    return test


def dump(page, profile):
    done = subprocess.run(
        [CHROMIUM, *FLAGS, "--window-size=1400,900", f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


@with_marks
def test_the_report_opens_on_the_result(finished, tmp_path):
    results = finished / "results/digits"
    page = tmp_path / "report.html"
    page.write_text((results / "report.html").read_text().replace("</body>", PROBE + "</body>"))
    probe = re.search(r'<pre id="probe">(.*?)</pre>', dump(page, tmp_path / "profile"), re.DOTALL).group(1)
    found = json.loads(html.unescape(probe))
    assert found["headings"] == [
        "Adaptive Diffusion Denoised Smoothing on scikit-learn's handwritten digits",
        "Result",
        "Certified accuracy (Table 1)",
        "Clean accuracy (Table 2)",
        "Certified accuracy against radius, votes: 1",
        "Certified accuracy against radius, votes: 5",
        "What was run",
        "How to read it",
        "The paper's figures",
        "How ADDS works: one trajectory",
        "What a sample costs",
        "How voting moves the class counts",
        "Denoised images, sigma 0.5",
        "Denoised images, sigma 1.0",
        "Claims",
        "All claims of the paper, with their contrasts",
        "More tables",
        "Probability of the true class",
        "Two bounds on the same counts",
        "Average certified radius",
        "Samples that sequential sampling needs, per setting",
        "More figures",
        "Two bounds on the same counts",
        "Samples that sequential sampling needs, per image",
        "How the privacy budget is spent",
    ]
    names = {path.stem for path in (results / "figures").glob("*.png")}
    assert {name for name, _, _ in found["pictures"]} == names
    assert all(width > 150 and height > 50 for _, width, height in found["pictures"])
    assert len(found["captions"]) == len(names)
    assert all(len(caption) > 80 for caption in found["captions"])
    assert max(found["together"]) < 1, "a figure and its caption are on one screen"
    verdicts = pd.read_csv(results / "tables/claims.csv").drop_duplicates("claim")["claim_verdict"]
    assert f"{(verdicts == 'undecided').sum()} undecided" in found["result"]
    made_by = json.loads((results / "provenance.json").read_text())
    for fact in (made_by["date"], *made_by["models"].values(), *made_by["lists"].values(), *made_by["devices"]):
        assert fact in found["run"]
    assert "guidance_scale" in found["run"], "the configuration"
    assert not found["missing"]
    files = [link for link in found["links"] if not link.startswith("#")]
    assert "explorer.html" in files
    assert all((results / link).is_file() for link in files), "every link works offline"


def test_the_report_needs_nothing_else(finished):
    text = (finished / "results/digits/report.html").read_text()
    assert not re.search(r"(src|href)=.?(https?:)?//", text)
    assert "<script" not in text


def test_snakemakes_own_report_shows_the_same_pages(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run", symlinks=True)
    done = run(folder, "--report", "snakemake.html")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (folder / "snakemake.html").read_text()
    for page in ("tables/claims.html", "figures/pipeline.html", "explorer.html"):
        assert f"results/digits/{page}" in text
