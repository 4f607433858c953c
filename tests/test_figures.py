"""What a test can tell of figures: each is drawn for runs of every shape, its content and its caption compared."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from adds.data.images import Images, Picture, class_names
from adds.methods.base import Query, purify
from adds.methods.release import Subject
from adds.registry import METHODS
from adds.results.accuracy import accuracy_steps, is_certified, value_at
from adds.results.certified import by_bound, certificates
from adds.results.figures import bounds, certified_accuracy, denoised, pipeline, runtime, samples, vote_distribution
from adds.results.figures.style import look, save, shorten
from adds.results.page import body_of
from adds.sampling.closeups import _noise, trajectory

PROJECT = Path(__file__).parents[1]
NAMES = class_names(PROJECT / "config/imagenet_classes.csv")
LOOK = {"font_size": 8, "dpi": 100}
VARIANTS = (("carlini", 1), ("densepure", 1), ("densepure", 5), ("adds", 1), ("adds", 5), ("adds_oneshot", 1))
SHAPES = {
    "digits": {"images": 12, "sigmas": (0.4, 0.6, 0.8), "classes": 10},
    "one sigma": {"images": 12, "sigmas": (0.6,), "classes": 10},
    "three images": {"images": 3, "sigmas": (0.4, 0.6, 0.8), "classes": 10},
    "paper": {"images": 16, "sigmas": (1.0, 1.5, 2.0), "classes": 1000},
}


def counts_of_a_run(*, images, sigmas, classes, n0=100, n=300, variants=VARIANTS):
    """Draw counts of images that are easier or harder, at noise that makes them harder still."""
    rng, rows = np.random.default_rng(0), []
    ease = rng.normal(1.2, 1.2, size=images)
    for place, (method, votes) in enumerate(variants):
        for sigma in sigmas:
            for number in range(images):
                odds = rng.gamma(0.3, size=classes)
                label = (37 * number) % classes
                odds /= odds.sum()
                share = 1 / (1 + np.exp(-(ease[number] - sigma + 0.25 * (votes > 1) + 0.05 * place)))
                odds = (1 - share) * odds + share * (np.arange(classes) == label)
                rows.append(
                    {
                        "method": method,
                        "sigma": sigma,
                        "votes": votes,
                        "number": 200 * number,
                        "label": label,
                        "counts_selection": rng.multinomial(n0, odds),
                        "counts_estimation": rng.multinomial(n, odds),
                        "n0": n0,
                        "n": n,
                        "stopped": "fixed",
                        "evaluations": (n0 + n) * votes * (1 + 3 * place),
                        "seconds": rng.uniform(1, 2) * (1 + place),
                        "budget_share": 1.0,
                        "seed": 0,
                        "guidance_scale": 0.8,
                        **dict.fromkeys(("bridges", "ending", "noise", "start"), ""),
                        "identity": "0",
                        "device_kind": "cpu",
                        "device": "CPU of a long name and a longer one still, 2.50 GHz",
                    }
                )
    return pd.DataFrame(rows)


@pytest.fixture(scope="module", params=SHAPES)
def shape(request):
    counts = counts_of_a_run(**SHAPES[request.param])
    return request.param, counts, certificates(counts, alpha=0.001, mode="fixed", bounds=["cohen", "pair"])


def exact(certified, radius):
    """The share of images that are certified at a radius, in percent, counted one by one."""
    return 100 * float(is_certified(certified, radius).mean())


def drawn_value(line, radius):
    """What a reader sees at a radius of a line of steps: the higher end where it falls."""
    x, y = line.get_path().vertices.T if line.get_drawstyle() == "default" else line.get_data()
    x, y = np.asarray(x), np.asarray(y)
    after = np.searchsorted(x, radius, side="left")
    return y[after] if after < len(y) else 0.0


def test_curves_are_the_exact_step_function(shape):
    _, _, certified = shape
    shown = by_bound(certified, "cohen")
    steps = accuracy_steps(shown)
    for setting, group in shown.groupby(["method", "sigma", "votes"]):
        own = steps[(steps[["method", "sigma", "votes"]] == list(setting)).all(axis=1)]
        radii = np.concatenate([np.linspace(0, 2, 301), group["radius"], group["radius"] + 1e-9])
        assert value_at(own, radii) == pytest.approx([exact(group, radius) for radius in radii])


def test_no_curve_is_drawn_above_the_truth(shape):
    """Nor below it, at any radius that a reader could look at."""
    _, _, certified = shape
    shown = by_bound(certified, "cohen")
    with look(LOOK):
        figure = certified_accuracy.draw(certified_accuracy.curves(shown, 5))
    sigmas = sorted(shown["sigma"].unique())
    variants = [("carlini", 1), ("densepure", 5), ("adds", 5), ("adds_oneshot", 1)]
    for axis, sigma in zip(figure.axes, sigmas, strict=True):
        steps = [line for line in axis.get_lines() if line.get_drawstyle() == "steps-pre"]
        assert len(steps) == len(variants)
        markers = [line for line in axis.get_lines() if line.get_marker() not in ("None", "_")]
        for variant, line in zip(variants, steps, strict=True):
            group = shown[(shown["sigma"] == sigma) & (shown["method"] == variant[0]) & (shown["votes"] == variant[1])]
            radii = np.concatenate([np.linspace(0, 2, 301), group["radius"]])
            assert [drawn_value(line, r) for r in radii] == pytest.approx([exact(group, r) for r in radii])
            for marker in markers:
                if marker.get_marker() == METHODS[variant[0]].marker:
                    seen = zip(*marker.get_data(), strict=True)
                    assert all(y == pytest.approx(exact(group, x)) for x, y in seen)
    limits = {axis.get_xlim() for axis in figure.axes}
    assert len(limits) == 1, "one axis for all panels"
    plt.close(figure)


def test_a_method_that_certifies_nothing_stays_visible():
    counts = counts_of_a_run(images=4, sigmas=(0.5,), classes=10)
    certified = certificates(counts, alpha=0.001, mode="fixed", bounds=["cohen"])
    lost = certified["method"] == "adds"
    certified.loc[lost, "abstained"], certified.loc[lost, "radius"] = True, 0.0
    table = certified_accuracy.curves(certified, 1)
    with look(LOOK):
        figure = certified_accuracy.draw(table)
    points = [line.get_data() for line in figure.axes[0].get_lines() if line.get_marker() == METHODS["adds"].marker]
    assert [(list(x), list(y)) for x, y in points] == [([0], [0])]
    told = certified_accuracy.caption(table, 1, bound="cohen", n=300, alpha=0.001)
    assert "certifies no image" in told
    plt.close(figure)


def test_time_is_scaled_and_leaves_the_first_image_of_a_job_out():
    counts = counts_of_a_run(images=6, sigmas=(0.5,), classes=10).assign(seconds=4.0)
    counts.loc[counts["number"].isin([0, 600]), "seconds"] = 400.0
    certified = certificates(counts, alpha=0.001, mode="fixed", bounds=["cohen"])
    numbers = [200 * place for place in range(6)]
    table = runtime.times(certified, numbers, images_per_job=3)
    assert table["seconds_per_10000_samples_median"].tolist() == pytest.approx([4.0 / 400 * 10_000] * 6)
    assert table["seconds_per_10000_samples_high"].tolist() == pytest.approx([100.0] * 6)
    assert set(table["images_timed"]) == {4}
    one_each = runtime.times(certified, numbers, images_per_job=1)
    assert set(one_each["images_timed"]) == {6}, "where every image is a job's first"
    assert runtime.times(certified[certified["number"] == 0], [0], 3)["images_timed"].eq(1).all()
    assert "CPU of a long name and a longer one still" in runtime.caption(table)
    votes = table.set_index(["method", "votes"])["evaluations_per_sample"]
    assert votes["adds", 5] == 5 * (1 + 3 * 4)


@pytest.mark.parametrize("stage", ["selection", "estimation"])
def test_heat_and_boxes_are_of_the_same_counts(shape, stage):
    name, counts, certified = shape
    shown = by_bound(certified, "cohen")
    table = vote_distribution.shares(counts, shown, NAMES, many=5, images=10, stage=stage)
    rows = counts[counts["method"] == "adds"].set_index(["number", "sigma", "votes"])
    for key, panel in table.groupby(["number", "sigma", "votes"]):
        drawn = np.array(rows.loc[key, f"counts_{stage}"])
        top = panel[panel["is_top"]]
        assert top["label"].tolist() == [drawn.argmax()]
        assert panel["share_percent"].sum() == pytest.approx(100)
        for row in panel[panel["label"] >= 0].itertuples():
            assert row.share_percent == pytest.approx(100 * drawn[row.label] / drawn.sum())
        assert panel["is_true"].sum() == 1, "the true class has a row, however rare it is"
        verdict = shown.set_index(["method", "number", "sigma", "votes"]).loc[("adds", *key)]
        certain = not verdict["abstained"] and verdict["prediction"] == drawn.argmax()
        assert bool(top["certified"].iloc[0]) == certain
    assert table["changed"].all() or not table["changed"].any(), "only panels in which something changes"
    true = table[table["is_true"] & table["votes"].eq(5)]["share_percent"].mean()
    assert f"to {true:.0f}% in the mean" in vote_distribution.caption(table, stage=stage)
    if name == "paper":
        assert table["name"].str.len().max() > 19


def test_caption_is_true_also_where_voting_changed_nothing():
    counts = counts_of_a_run(images=4, sigmas=(0.5, 0.6), classes=10)
    same = counts[counts["votes"].eq(1) | counts["method"].ne("adds")]
    five = same[same["method"] == "adds"].assign(votes=5)
    counts = pd.concat([same, five], ignore_index=True)
    shown = certificates(counts, alpha=0.001, mode="fixed", bounds=["cohen"])
    table = vote_distribution.shares(counts, shown, {}, many=5, images=2, stage="selection")
    assert not table["changed"].any()
    assert "change neither correctness nor certification" in vote_distribution.caption(table, stage="selection")
    asked = vote_distribution.shares(counts, shown, {}, many=5, images=[600, 200], stage="selection")
    panels = asked.drop_duplicates(["number", "sigma"])
    assert panels[["number", "sigma"]].to_numpy().tolist() == [[600, 0.5], [600, 0.6], [200, 0.5], [200, 0.6]]
    with pytest.raises(ValueError, match=r"figures\.vote_distribution_images lists 7"):
        vote_distribution.shares(counts, shown, {}, many=5, images=[7], stage="selection")


def test_the_share_that_is_needed():
    counts = pd.DataFrame([{**counts_of_a_run(images=1, sigmas=(0.5,), classes=2).iloc[0]}])
    needed = round(vote_distribution.needed_percent(300, 0.001) * 3)
    for hits, expected in ((needed, False), (needed - 1, True)):
        row = counts.assign(counts_selection=[[100, 0]], counts_estimation=[[hits, 300 - hits]])
        found = certificates(row, alpha=0.001, mode="fixed", bounds=["cohen"])
        assert bool(found["abstained"].iloc[0]) == expected


def test_every_figure_is_drawn_and_captioned(shape, tmp_path):
    name, counts, certified = shape
    shown = by_bound(certified, "cohen")
    numbers = sorted(set(counts["number"]))
    drawn = {
        "accuracy": certified_accuracy.curves(shown, 5),
        "bounds": bounds.curves(certified),
        "runtime": runtime.times(shown, numbers, 24),
        "votes": vote_distribution.shares(counts, shown, NAMES, many=5, images=10, stage="selection"),
    }
    told = {
        "accuracy": certified_accuracy.caption(drawn["accuracy"], 5, bound="cohen", n=300, alpha=0.001),
        "bounds": bounds.caption(drawn["bounds"]),
        "runtime": runtime.caption(drawn["runtime"]),
        "votes": vote_distribution.caption(drawn["votes"], stage="selection"),
    }
    draws = {
        "accuracy": certified_accuracy.draw,
        "bounds": bounds.draw,
        "runtime": runtime.draw,
        "votes": vote_distribution.draw,
    }
    with look(LOOK):
        for figure, table in drawn.items():
            save(draws[figure](table), table, tmp_path / figure, told[figure])
    for figure in drawn:
        for suffix in ("pdf", "png", "csv"):
            assert (tmp_path / f"{figure}.{suffix}").stat().st_size > 500
        body = body_of((tmp_path / f"{figure}.html").read_text())
        assert "data:image/png;base64," in body
        assert body.count("<figcaption>") == 1
    assert f"{counts['number'].nunique()} images" in told["accuracy"], name


def test_the_bounds_figure_leaves_other_bounds_out():
    counts = counts_of_a_run(images=3, sigmas=(0.5,), classes=10)
    both = certificates(counts, alpha=0.001, mode="fixed", bounds=["cohen", "pair"])
    another = both[both["bound"] == "cohen"].assign(bound="mine")
    assert set(bounds.curves(pd.concat([both, another]))["bound"]) == {"cohen", "pair"}


def test_a_long_name_is_cut_with_an_ellipsis():
    assert shorten("tench", 18) == "tench"
    assert shorten("black-footed ferret, ferret", 18) == "black-footed ferr…"
    assert len(shorten("x" * 40, 18)) == 18


def test_denoised_images_mark_errors_and_name_sigma_and_image():
    pictures = np.random.default_rng(0).uniform(size=(2, 3, 3, 8, 8)).astype(np.float32)
    rows = [
        {"row": row, "column": column, "number": 200 * row, "name": name, "caption": caption, "right": right}
        for row in range(2)
        for column, (name, caption, right) in enumerate(
            [
                ("original", "tench", "yes"),
                ("noised (RS)", "black-footed ferret, ferret", "no"),
                ("ADDS", "tench", "yes"),
            ]
        )
    ]
    table = pd.DataFrame(rows)
    with look(LOOK):
        figure = denoised.draw(pictures, table, 0.5)
    words = [axis.get_xlabel() for axis in figure.axes]
    assert sum(word.startswith("✗ black-footed") for word in words) == 2
    assert [axis.get_title() for axis in figure.axes[:2]] == ["image\n0", "image\n200"]
    assert [axis.get_ylabel() for axis in figure.axes[::2]] == ["original", "noised (RS)", "ADDS"]
    assert "0.5" in figure.get_suptitle()
    assert "the 2 that are wrong" in denoised.caption(table, 0.5)
    plt.close(figure)


def test_shown_images_are_of_different_classes():
    labels = [6, 6, 6, 2, 5, 6, 2]
    table = pd.DataFrame({"number": range(7), "label": pd.array(labels, dtype="Int64"), "class_name": "", "pixels": ""})
    images = Images(table, np.zeros((7, 1, 2, 2), np.uint8))
    assert images.of_different_classes(3).table["label"].tolist() == [6, 2, 5]
    assert images.of_different_classes(5).table["number"].tolist() == [0, 1, 3, 4, 6]
    assert len(images.of_different_classes(99)) == 7
    unknown = Images(table.assign(label=pd.NA), images.stored)
    assert unknown.of_different_classes(2).table["number"].tolist() == [0, 1]


def test_real_images_stand_above_those_that_were_made():
    made, real = np.zeros((20, 1, 8, 8), np.float32), np.ones((4, 1, 8, 8), np.float32)
    with look(LOOK):
        figure = samples.draw(made, real)
    shown = [
        axis.get_images()[0].get_array().mean() for part in figure.subfigs for axis in part.axes if axis.get_images()
    ]
    assert shown == [1.0] * 4 + [0.0] * 20
    assert samples.pixels_table(made, real)["made"].tolist() == [False] * 4 + [True] * 20
    plt.close(figure)


def test_the_pipeline_is_drawn_from_a_real_trajectory(gaussian_pipeline, image):
    """Its last image is what the classifier is shown by the method itself, and its budget is the filter's."""
    picture = Picture.of(image.numpy(), number=7)
    pictures, steps = trajectory(gaussian_pipeline, picture, sigma=0.6, guidance_scale=0.8, seed=3)
    subject = Subject(image, torch.zeros(1, dtype=torch.long), _noise(gaussian_pipeline, picture, 0.6, 3))
    shown = purify("adds", gaussian_pipeline, Query(0.6, guidance_scale=0.8), subject)
    assert shown is not None
    assert pictures[-1, 1] == pytest.approx((shown.images[0].numpy() + 1) / 2)
    assert steps["timestep"].tolist() == sorted(gaussian_pipeline.grid.timesteps, reverse=True)
    guided = steps["guided"].to_numpy()
    assert 0 < guided.sum() < len(steps)
    assert guided[: guided.sum()].all(), "guided first"
    assert np.isnan(pictures[~guided, 2]).all()
    assert not np.isnan(pictures[guided]).any()
    distance = [np.abs(pictures[guided, kind] - image.numpy()).mean() for kind in (1, 2)]
    assert distance[1] < 0.5 * distance[0], "guiding pulls towards the image"
    spent = steps["spent_percent"].to_numpy()
    assert (np.diff(spent) >= 0).all()
    assert spent[guided][-1] == pytest.approx(100, abs=0.01)
    assert spent.max() <= 100
    told = pipeline.caption(steps, number=7, sigma=0.6)
    assert f"{guided.sum()} guided steps" in told
    with look(LOOK):
        figure = pipeline.draw(pictures, steps, image.numpy(), truth="black-footed ferret", prediction="tench")
    assert len(figure.subfigs) == 4
    plt.close(figure)
