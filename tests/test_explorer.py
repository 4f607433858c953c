"""The explorer: its numbers are the certificates', in the file and as a person finds them in a browser."""

import html
import json
import math
import re
import subprocess
import time
import tomllib
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from adds.data.images import Images, class_names, describe, read_table
from adds.registry import in_order, title
from adds.results.accuracy import is_certified
from adds.results.certified import by_bound
from adds.results.explorer import TEMPLATE, explored, explorer_page, pictures_of
from tests.test_report import CHROMIUM, FLAGS
from tests.workflow import PROJECT

VARIANTS = [("carlini", 1), ("densepure", 1), ("densepure", 5), ("adds", 1), ("adds", 5)]
SIGMAS = (0.4, 0.8, 1.0)
HOSTILE = ["</script><script>hit = 1</script>", '"><img src=x onerror="hit = 1">', "<b>it's</b> & {{data}}", "null"]

browser = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]


class Run:
    """A run that nobody sampled: counts and certificates at random, of the form that the workflow gives them."""

    def __init__(
        self,
        images=24,
        variants=VARIANTS,
        sigmas=SIGMAS,
        names=10,
        n=360,
        labelled=True,
        missing=(),
        size=8,
        channels=1,
    ):
        self.random = np.random.default_rng(0)
        self.names = names if isinstance(names, list) else [f"class {place}" for place in range(names)]
        stored = self.random.integers(0, 256, size=(images, channels, size, size), dtype=np.uint8)
        listed = pd.DataFrame({"number": self.random.permutation(10 * images)[:images]})
        if labelled:
            listed["label"] = self.random.integers(0, len(self.names), images)
        table = describe(listed, stored, dict(enumerate(self.names)), len(self.names))
        self.images, self.labelled = Images(table, stored), labelled
        settings = [(*v, s) for v in variants for s in sigmas if (*v, s) not in missing]
        rows = [self._row(*setting, row, n) for setting in settings for row in table.itertuples()]
        self.counts = pd.DataFrame(rows)
        self.certified = pd.concat([self._certified(bound) for bound in ("cohen", "pair")], ignore_index=True)

    def _row(self, method, votes, sigma, image, n):
        label = self.random.integers(len(self.names)) if pd.isna(image.label) else int(image.label)
        leading = label if self.random.random() < 0.7 else self.random.integers(len(self.names))
        weights = self.random.dirichlet(np.full(len(self.names), 0.05))
        weights[leading] += self.random.random() * 2
        counts = self.random.multinomial(n, weights / weights.sum())
        key = {"method": method, "votes": votes, "sigma": sigma, "number": image.number, "label": image.label}
        return {**key, "counts_estimation": counts, "n0": 90, "n": n, "stopped": "fixed", "alpha": 0.001}

    def _certified(self, bound):
        share = self.counts["counts_estimation"].map(max) / self.counts["n"]
        table = self.counts.drop(columns="counts_estimation").assign(bound=bound)
        table["prediction"] = self.counts["counts_estimation"].map(np.argmax)
        table["abstained"] = share < (0.6 if bound == "cohen" else 0.5)
        table["radius"] = (share - 0.5).where(~table["abstained"], 0.0) * (1.0976 if bound == "pair" else 0.9877)
        right = table["prediction"] == table["label"].astype("Int64")
        table["correct"] = right.astype(bool) if self.labelled else pd.Series(pd.NA, table.index, dtype="boolean")
        return table

    def page(self, pictures=None, experiment="test"):
        names = dict(enumerate(self.names))
        return explorer_page(
            experiment, "cohen", explored(self.certified, self.counts, self.images.table, names), pictures
        )

    def closeups(self, sigma):
        """What the rule `denoise` leaves, for the first two images."""
        numbers = self.images.table["number"][:2].astype(str).to_numpy()
        shape = self.images.stored.shape[1:]
        return {
            "pictures": self.random.random((2, 3, *shape), dtype=np.float32),
            "column": np.tile(["0", "1", "2"], 2),
            "number": np.repeat(numbers, 3),
            "name": np.tile(["original", "noised", "ADDS"], 2),
            "caption": np.array([f"at {sigma}"] * 6),
            "right": np.tile(["yes", "no", "yes"], 2),
        }


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))


@pytest.fixture(scope="module")
def run():
    return Run(missing=[("densepure", 5, 0.4)])


# What is in the file


def test_its_numbers_are_the_certificates(run):
    data = data_of(run.page())
    numbers, keys = data["images"]["number"], [variant["key"] for variant in data["variants"]]
    assert numbers == run.images.table["number"].tolist()
    assert [variant["title"] for variant in data["variants"]] == [title(*v) for v in in_order(VARIANTS)]
    for row in run.certified.itertuples():
        setting = data["settings"][data["sigmas"].index(f"{row.sigma:g}")][keys.index(f"{row.method}-{row.votes}")]
        place = numbers.index(row.number)
        radius = setting["radius"][row.bound][place]
        assert data["labels"][setting["prediction"][place]] == row.prediction
        assert (radius is None) == row.abstained
        assert radius is None or -1e-12 < row.radius - radius < 1.0001e-4
        assert setting["samples"][place] == [row.n0, row.n]
    assert data["settings"][0][keys.index("densepure-5")] is None


def test_the_largest_counts_are_kept_and_the_true_class_whatever_its_count(run):
    data = data_of(run.page())
    keys = [variant["key"] for variant in data["variants"]]
    for row in run.counts.itertuples():
        setting = data["settings"][data["sigmas"].index(f"{row.sigma:g}")][keys.index(f"{row.method}-{row.votes}")]
        flat = setting["counts"][data["images"]["number"].index(row.number)]
        kept = {data["labels"][place]: count for place, count in zip(flat[::2], flat[1::2], strict=True)}
        assert all(row.counts_estimation[label] == count > 0 for label, count in kept.items())
        left = [count for label, count in enumerate(row.counts_estimation) if label not in kept]
        assert max(left, default=0) <= min(kept.values()) or len(kept) > 5
        assert row.label in kept or row.counts_estimation[row.label] == 0
        assert len(kept) <= 7


def test_pictures_are_embedded_only_where_they_may_be_passed_on(run):
    assert "data:image" not in run.page(None)
    page = run.page(pictures_of(run.images, {sigma: run.closeups(sigma) for sigma in SIGMAS}))
    pictures = 24 + 2 * 2 * len(SIGMAS)  # what is noised and what ADDS made of it
    assert page.count("data:image/png;base64,") == pictures
    assert "http://" not in page
    assert "https://" not in page


def test_pictures_of_images_that_the_run_leaves_out_stay_out(run):
    few = pictures_of(run.images.part(1, 24), {0.4: run.closeups(0.4)})
    assert list(few["closeups"]) == [run.images.table["number"][1]]


def test_large_pictures_are_made_small():
    large = Run(images=2, size=256, channels=3)
    shown = pictures_of(large.images, {0.4: large.closeups(0.4)})
    assert not shown["small"]
    assert all(len(address) < 45_000 for address in shown["images"])


@pytest.mark.parametrize("pictures", [True, False])
def test_names_cannot_break_out_of_the_data(pictures):
    run = Run(images=4, names=HOSTILE)
    page = run.page(pictures_of(run.images, {}) if pictures else None)
    assert page.count("<script") == TEMPLATE.read_text().count("<script")
    assert page.count("</script") == TEMPLATE.read_text().count("</script")
    assert set(data_of(page)["names"]) <= set(HOSTILE)


def test_a_class_may_be_called_null(tmp_path):
    run = Run(names=HOSTILE)
    run.images.table.to_csv(tmp_path / "images.csv", index=False)
    table = read_table(tmp_path / "images.csv")
    assert set(class_names(None, table).values()) == set(HOSTILE)


def test_the_template_is_installed_with_the_library():
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert TEMPLATE.name in settings["package-data"]["adds.results"]


# What a person sees

PROBE = """
<script>
const wait = () => new Promise((done) => setTimeout(done, 20));
const text = (selector) => document.querySelector(selector)?.textContent;
const shown = () => [...document.querySelectorAll("#list tbody tr")].map((row) => Number(row.dataset.image));
const visit = async (hash) => { location.hash = hash; await wait(); };
const choose = async (name, value) => {
  const input = [...controls.elements].find((e) => e.name === name && (e.type !== "radio" || e.value === value));
  if (input.type === "radio") input.checked = true; else input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.dispatchEvent(new Event("change", { bubbles: true }));
  await wait();
};
(async () => {
  const element = document.createElement("pre");
  let found;
  await new Promise((done) => addEventListener("load", done));
  await wait();  // before that, an address takes the place of the one before
  try { found = await (async () => { STEPS })(); } catch (error) { found = { error: String(error.stack) }; }
  element.id = "probe";
  element.textContent = JSON.stringify(found);
  document.body.append(element);
})();
</script>
"""


@pytest.fixture
def opened(tmp_path):
    """Open a page at an address, take JavaScript's steps there, and return what they return."""

    def do(page, steps, address=""):
        file = tmp_path / "explorer.html"
        file.write_text(page.replace("</body>", PROBE.replace("STEPS", steps) + "</body>"), encoding="utf-8")
        words = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri() + address]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
        found = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL).group(1)))
        assert not (isinstance(found, dict) and "error" in found), found["error"]
        return found

    return do


def outcomes(run, sigma, bound="cohen", radius=0.0):
    """Image by variant: certified or not, by pandas."""
    table = by_bound(run.certified, bound)
    table = table[table["sigma"] == sigma].copy()
    table["key"] = table["method"] + "-" + table["votes"].astype(str)
    table["certified"] = is_certified(table, radius)
    table["wrong"] = (
        ~table["correct"].astype("boolean").fillna(True) & ~table["abstained"] & (table["radius"] >= radius)
    )
    wide = table.pivot(
        index="number", columns="key", values=["certified", "wrong", "prediction", "abstained", "radius"]
    )
    return wide.reindex(run.images.table["number"])


def expected(run):
    """Addresses, and the images that each is to show, in the list's order."""

    def chosen(mask):
        return [int(number) for number in mask.index[mask.astype(bool)]]

    for sigma in sorted(run.counts["sigma"].unique()):
        for bound in ("cohen", "pair"):
            for radius in (0.0, 0.3):
                at = f"#sigma={sigma:g}&bound={bound}&radius={radius:g}"
                table = outcomes(run, sigma, bound, radius)
                certified = table["certified"].astype(bool)
                if {"adds-5", "carlini-1"} <= set(certified):
                    yield f"{at}&by=adds-5&not=carlini-1", chosen(certified["adds-5"] & ~certified["carlini-1"])
                    yield f"{at}&not=adds-5", chosen(~certified["adds-5"])
                yield f"{at}&show=all", chosen(certified.all(axis=1))
                yield f"{at}&show=none", chosen(~certified.any(axis=1))
                yield f"{at}&show=wrong", chosen(table["wrong"].any(axis=1)) if run.labelled else None
        table = outcomes(run, sigma)
        for method in ("densepure", "adds"):
            keys = [key for key in table["prediction"] if key.startswith(f"{method}-")]
            changed = (table["prediction"][keys].nunique(axis=1) > 1) | (table["abstained"][keys].nunique(axis=1) > 1)
            yield f"#sigma={sigma:g}&show=changed-{method}", chosen(changed)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"missing": [("densepure", 5, 0.4), ("carlini", 1, 1.0)]}, id="a variant missing at a sigma"),
        pytest.param({"labelled": False}, id="no labels"),
        pytest.param({"images": 3, "sigmas": (0.5,)}, id="three images, one sigma"),
    ],
)
class TestFilters:
    pytestmark = browser

    def test_they_show_what_pandas_finds(self, options, opened):
        run = Run(**options)
        wanted = {address: images for address, images in expected(run) if images is not None}
        steps = f"""
            const found = {{}};
            for (const hash of {json.dumps(list(wanted))}) {{
              await visit(hash);
              found[hash] = [shown(), text("#found")];
            }}
            return found;
        """
        all_images = len(run.images)
        told = {address: [images, f"{len(images)} of {all_images} images"] for address, images in wanted.items()}
        assert opened(run.page(), steps) == told
        assert len({tuple(images) for images in wanted.values()}) > (2 if all_images == 3 else 10), "filters do differ"


class TestPage:
    pytestmark = browser

    def test_its_controls_write_the_address_and_an_address_sets_the_controls(self, run, opened):
        steps = """
            const seen = [];
            for (const [name, value] of [["sigma", "0.8"], ["bound", "pair"], ["radius", "0.2"], ["by", "adds-5"],
                ["not", "carlini-1"], ["show", "changed"], ["label", "3"], ["text", "Class 3"]]) {
              await choose(name, value);
              seen.push(location.hash);
            }
            const last = shown();
            document.getElementById("clear").click(); await wait();
            return [seen, last, location.hash, shown().length, history.length];
        """
        seen, last, cleared, images, _ = opened(run.page(), steps)
        assert seen[-1] == (
            "#sigma=0.8&bound=pair&radius=0.2&by=adds-5&not=carlini-1&show=changed&label=3&text=Class+3"
        )
        assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
        assert (cleared, images) == ("#sigma=0.8&bound=pair", 24)
        steps = """
            const values = Object.fromEntries(new FormData(controls));
            return [values, shown(), document.getElementById("link").hash];
        """
        values, shown, link = opened(run.page(), steps, seen[-1])
        assert values == {
            "sigma": "0.8",
            "bound": "pair",
            "radius": "0.2",
            "by": "adds-5",
            "not": "carlini-1",
            "show": "changed",
            "label": "3",
            "text": "Class 3",
        }
        assert shown == last
        assert link == seen[-1]

    def test_class_filters(self, run, opened):
        table = run.images.table.assign(name=run.images.table["class_name"])
        label = int(table["label"].mode()[0])
        name = run.names[label]
        predicted = by_bound(run.certified, "cohen").query("sigma == 0.4 and prediction == @label")["number"]
        mentioned = table["number"][(table["label"] == label) | table["number"].isin(predicted)]
        steps = f"""
            await visit("#label={label}"); const first = shown();
            await visit("#text={name.upper()}"); return [first, shown()];
        """
        assert opened(run.page(), steps) == [
            table["number"][table["label"] == label].tolist(),
            mentioned.tolist(),
        ]

    def test_every_column_sorts_both_ways_and_back(self, run, opened):
        steps = """
            const seen = {};
            for (const key of ["number", "class", "adds-5"]) {
              seen[key] = [];
              for (let turn = 0; turn < 3; turn++) {
                document.querySelector(`[data-sort="${key}"]`).click(); await wait();
                const sorted = document.querySelector("[aria-sort]");
                seen[key].push([sorted && sorted.getAttribute("aria-sort"), shown()]);
              }
            }
            return seen;
        """
        seen = opened(run.page(), steps)
        numbers = run.images.table["number"].tolist()
        assert seen["number"] == [
            ["ascending", sorted(numbers)],
            ["descending", sorted(numbers)[::-1]],
            [None, numbers],
        ]
        by_class = run.images.table.set_index("number")["label"]
        assert by_class[seen["class"][0][1]].is_monotonic_increasing
        table = outcomes(run, 0.4).xs("adds-5", axis=1, level="key")
        order = [
            -1 if row.abstained else row.radius if row.certified else -2 - row.radius
            for row in table.loc[seen["adds-5"][0][1]].itertuples()
        ]
        assert seen["adds-5"][0][0] == "descending"
        assert order == sorted(order, reverse=True)
        assert sorted(seen["adds-5"][1][1]) == sorted(numbers)

    def test_cells_and_heads_tell_the_certificates(self, run, opened):
        steps = """
            await visit("#sigma=0.8");
            const heads = [...document.querySelectorAll("#list thead th")].slice(2).map((head) =>
              [head.querySelector("button").textContent, parseInt(head.querySelector(".quiet").textContent)]);
            const rows = [...document.querySelectorAll("#list tbody tr")].map((row) =>
              [...row.cells].slice(2).map((cell) => ["b", ".name"].map((it) => cell.querySelector(it).textContent)));
            return [heads, rows];
        """
        heads, rows = opened(run.page(), steps)
        table = outcomes(run, 0.8)
        keys = [f"{method}-{votes}" for method, votes in in_order(VARIANTS)]
        told = [
            (title(*v), int(table["certified"][key].sum())) for v, key in zip(in_order(VARIANTS), keys, strict=True)
        ]
        assert [tuple(head) for head in heads] == told
        for number, row in zip(run.images.table["number"], rows, strict=True):
            label = run.images.table.set_index("number")["label"][number]
            for key, (verdict, name) in zip(keys, row, strict=True):
                cell = {what: table[what][key][number] for what in ("abstained", "radius", "certified", "prediction")}
                radius = f"{math.floor(cell['radius'] * 1e4) / 1e4:.4f}"
                if cell["abstained"]:
                    assert verdict == "○ abstains"
                else:
                    assert verdict[0] == ("✓" if cell["certified"] else "✗")
                    assert abs(float(verdict[2:]) - float(radius)) <= 0.00051
                sign = "" if cell["prediction"] == label else "≠ "
                assert name == sign + run.names[int(cell["prediction"])]

    def test_a_row_opens_its_image_and_the_back_button_returns(self, run, opened):
        number = int(run.images.table["number"][:2].min())  # of those with denoised images, and not the last
        page = run.page(pictures_of(run.images, {sigma: run.closeups(sigma) for sigma in SIGMAS}))
        steps = f"""
            await visit("#sigma=0.8&sort=number");
            document.querySelector('[data-image="{number}"] td').click(); await wait();
            const view = [location.hash, text("#image h1"), document.getElementById("browse").hidden, document.title];
            const bars = [...document.querySelectorAll(".counts tbody tr")].map((row) => [...row.cells].map((cell) =>
              [cell.querySelector("p")?.textContent, [...cell.querySelectorAll(".bar")].map((bar) =>
                [bar.className, bar.querySelector(".name").textContent, bar.querySelector(".number").textContent])]));
            const pictures = [...document.querySelectorAll("#image img")].map((img) => [img.alt, img.naturalWidth]);
            document.dispatchEvent(new KeyboardEvent("keydown", {{ key: "ArrowRight", bubbles: true }})); await wait();
            const next = location.hash;
            history.go(-2); await wait(); await wait();
            return {{ view, bars, pictures, next, back: [location.hash, document.getElementById("image").hidden,
              document.activeElement.closest("[data-image]")?.dataset.image] }};
        """
        found = opened(page, steps)
        assert found["view"] == [
            f"#sigma=0.8&sort=number&image={number}",
            f"Image {number} test",
            True,
            f"Image {number}: test",
        ]
        assert found["next"] != found["view"][0]
        assert re.fullmatch(r"#sigma=0.8&sort=number&image=\d+", found["next"])
        assert found["back"][:2] == ["#sigma=0.8&sort=number", True]
        assert found["back"][2] == found["next"].split("=")[-1], "where one was"
        assert len(found["pictures"]) == 1 + 2 * len(SIGMAS)
        assert all(width == 8 for _, width in found["pictures"])
        counts = run.counts[run.counts["number"] == number].set_index(["method", "votes", "sigma"])
        for variant, row in zip(in_order(VARIANTS), found["bars"], strict=True):
            for sigma, (told, bars) in zip(SIGMAS, row[1:], strict=True):
                if (*variant, sigma) not in counts.index:
                    assert not bars
                    continue
                setting = counts.loc[(*variant, sigma)]
                assert "90 + 360 samples" in told
                for kind, name, share in bars:
                    if kind == "bar other":
                        continue
                    label = run.names.index(name)
                    assert ("true" in kind) == (label == setting["label"])
                    assert abs(float(share[:-1]) - 100 * setting["counts_estimation"][label] / 360) < 0.051
                assert abs(sum(float(share[:-1]) for *_, share in bars) - 100) < 0.5

    def test_an_address_opens_an_image_and_nonsense_opens_the_table(self, run, opened):
        number = int(run.images.table["number"][5])
        steps = (
            'return [text("#image h1"), document.getElementById("image").hidden, shown().length, text("#image .note")]'
        )
        heading, hidden, _, note = opened(run.page(), steps, f"#sigma=0.8&image={number}")
        assert (heading, hidden) == (f"Image {number} test", False)
        assert "figures.explorer_pictures is false" in note
        nonsense = "#sigma=7&bound=x&radius=-1&by=y&show=z&label=999&sort=q&image=123456&other=%3Cb%3E"
        assert opened(run.page(), steps, nonsense)[1:3] == [True, 24]

    def test_names_are_shown_as_they_are(self, opened):
        run = Run(images=6, names=HOSTILE)
        number = int(run.images.table["number"][0])
        steps = f"""
            await visit("#text=" + encodeURIComponent("<b>"));
            await visit("#");
            const names = [...document.querySelectorAll("td.class .name")].map((name) => name.textContent);
            const options = [...controls.elements.label.options].map((option) => option.textContent);
            await visit("#image={number}");
            const inserted = document.querySelectorAll("#image b b, img").length;
            return [names, options, text("#image .subject b"), typeof hit, inserted];
        """
        names, options, heading, hit, inserted = opened(run.page(experiment="<i>&"), steps)
        assert names == run.images.table["class_name"].tolist()
        assert set(options) == {"all", *names}
        assert heading == names[0]
        assert (hit, inserted) == ("undefined", 0)

    def test_the_papers_size_opens_and_filters(self, opened):
        """250 images, 9 variants, 3 sigmas, 1000 classes with long names."""
        variants = [*VARIANTS, ("adds_oneshot", 1), ("rs", 1), ("rs_trained", 1), ("bayes", 1)]
        names = [f"{'long ' * 8}name of class number {place}" for place in range(1000)]
        run = Run(images=250, variants=variants, sigmas=(1.0, 1.5, 2.0), names=names, n=10_000)
        wanted = dict(list(expected(run))[:4])
        steps = f"""
            const found = {{}};
            for (const hash of {json.dumps(list(wanted))}) {{ await visit(hash); found[hash] = shown(); }}
            return found;
        """
        page, begun = run.page(), time.monotonic()
        assert opened(page, steps) == wanted
        print(f"{len(page) / 1e6:.2f} MB; opened and filtered {len(wanted)} times in {time.monotonic() - begun:.1f} s")
        assert len(page) < 3e6

    @pytest.mark.workflow
    def test_the_explorer_of_a_run_shows_its_certificates(self, finished, opened):
        results = finished / "results/digits"
        page = (results / "explorer.html").read_text()
        images = pd.read_csv(results / "images.csv")
        certified = by_bound(pd.read_parquet(results / "certificates.parquet"), "cohen")
        certified = certified[certified["sigma"] == 1.0].assign(certified=is_certified(certified))
        steps = """
            await visit("#sigma=1");
            const heads = [...document.querySelectorAll("#list thead th")].slice(2).map((head) =>
              [head.querySelector("button").textContent, parseInt(head.querySelector(".quiet").textContent)]);
            document.querySelector("#list tbody a").click(); await wait();
            const pictures = [...document.querySelectorAll("#image img")].map((image) => image.naturalWidth);
            return [heads, pictures, document.querySelectorAll(".counts tbody tr").length];
        """
        heads, pictures, variants = opened(page, steps)
        counted = certified.groupby(["method", "votes"])["certified"].sum()
        assert heads == [[title(*variant), int(counted[variant])] for variant in in_order(counted.index)]
        assert variants == len(counted)
        drawn = np.load(results / "denoised/sigma1.0.npz")["pictures"].shape[1] - 1
        assert pictures == [8] * (1 + 2 * drawn)
        assert len(data_of(page)["pictures"]["images"]) == len(images)
