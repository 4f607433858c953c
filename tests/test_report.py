"""The report as a person sees it: in a browser, with every figure and table in it."""

import json
import re
import shutil
import subprocess

import pytest

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
const element = document.createElement("pre");
element.id = "probe";
document.body.append(element);
const found = {};
const note = (path, entry) => { found[path] = entry; element.textContent = JSON.stringify(found); };
for (const [path, entry] of Object.entries(results)) {
  if (entry.mime_type.startsWith("image/")) {
    const image = new Image();
    image.onload = () => note(path, [image.naturalWidth, image.naturalHeight, entry.caption]);
    image.src = entry.data_uri;
  } else {
    note(path, [decodeURIComponent(escape(atob(entry.data_uri.split(",")[1]))), entry.caption]);
  }
}
</script>
"""

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def dump(page, profile):
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_report_opens_with_every_figure_and_table(finished, tmp_path):
    report = (finished / "results/digits/report.html").read_text()
    page = tmp_path / "report.html"
    page.write_text(report.replace("</body>", PROBE + "</body>"))
    dom = dump(page, tmp_path / "profile")
    app = re.search(r'<div id="app">(.*)', dom, re.DOTALL).group(1)
    for words in ("Figures", "Tables", "Adaptive Diffusion Denoised Smoothing"):
        assert words in app
    probe = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL).group(1)
    found = json.loads(probe.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    pictures = {path.split("/")[-1] for path, entry in found.items() if len(entry) == 3}
    assert pictures == {
        "certified_accuracy_votes1.png",
        "certified_accuracy_votes5.png",
        "runtime.png",
        "vote_distribution.png",
        "denoised_sigma0.5.png",
        "denoised_sigma1.0.png",
        "budget.png",
        "bounds.png",
        "samples_needed.png",
    }
    assert all(width > 200 and height > 50 for width, height, _ in (e for e in found.values() if len(e) == 3))
    tables = {path.split("/")[-1]: entry[0] for path, entry in found.items() if len(entry) == 2}
    assert set(tables) == {
        "certified_accuracy.html",
        "clean_accuracy.html",
        "true_class_probability.html",
        "bounds.html",
        "savings.html",
        "average_certified_radius.html",
        "claims.html",
        "explorer.html",
    }
    assert all("ADDS, 5 votes" in page for page in tables.values())
    assert all("sigma" in entry[-1] or len(entry[-1]) > 80 for entry in found.values()), "captions say how to read"
