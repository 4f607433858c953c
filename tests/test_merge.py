"""Counts that this configuration didn't make are refused, with the files and the command that makes them anew."""

import re

import numpy as np
import pandas as pd
import pytest

from adds.registry import Variant
from adds.results.accuracy import accuracy_steps, accuracy_table, is_certified, value_at
from adds.results.certified import certificates
from adds.results.merge import ForeignCountsError, merge_counts
from adds.sampling.job import KEY, whole_identity
from tests.test_ledger import CONFIGURED, IDENTITY, LEADER, MODELS, SIZE, Jobs, identity_of, images_of

IMAGES = images_of(4, 5, 6, 7)
RS = {"family": "rs", "sigma": 0.6, "seed": 0}
RS_IDENTITY = whole_identity(RS, {"classifier": MODELS["classifier"]}, "cpu")
BOTH = {"diffusion": "diffusion", "classifier": "classifier"}
IDENTITIES = [
    {"method": "adds", "sigma": "0.6", "votes": 2, "identity": CONFIGURED, "folders": BOTH},
    {"method": "adds_oneshot", "sigma": "0.6", "votes": 1, "identity": CONFIGURED, "folders": BOTH},
    {"method": "rs", "sigma": "0.6", "votes": 1, "identity": RS, "folders": {"classifier": "classifier"}},
]


SAMPLING = {"mode": "fixed", "n0": SIZE.n0, "n": SIZE.n}
SEQUENTIAL = {"mode": "sequential", "n0": 8, "n": 100, "stop": {"questions": [{"bound": "pair", "radius": 0.0}]}}


@pytest.fixture(scope="module")
def counted(schedule, tmp_path_factory):
    """The counts of an experiment with three settings, two jobs each."""
    jobs = Jobs(schedule, tmp_path_factory.mktemp("ledger"))
    settings = [(LEADER, IDENTITY), (Variant("adds_oneshot", 1), IDENTITY), (Variant("rs", 1), RS_IDENTITY)]
    return pd.concat(
        [
            jobs(IMAGES.part(2 * half, 2 * half + 2), *setting).assign(file=f"{setting[0].method}{half}.parquet")
            for setting in settings
            for half in range(2)
        ],
        ignore_index=True,
    ).assign(seconds=0.0)


class Folder:
    """Writes counts where jobs would leave them, and merges what is there."""

    def __init__(self, path):
        self.path = path

    def merge(
        self, counts, *, images=IMAGES.table, identities=IDENTITIES, models=MODELS, sampling=SAMPLING, partial=False
    ):
        for name, rows in counts.groupby("file"):
            rows.drop(columns="file").to_parquet(self.path / name, index=False)
        files = sorted(self.path.glob("*.parquet"))
        return merge_counts(files, images, identities, models, sampling, partial=partial)

    def refuses(self, counts, *told, files=None, error=ForeignCountsError, **options):
        """The message says all of this, and how exactly these files are made anew."""
        with pytest.raises(error) as refusal:
            self.merge(counts, **options)
        message = str(refusal.value)
        for text in told:
            assert text in message
        if files is not None:
            assert f"They are in {', '.join(str(self.path / name) for name in files[:3])}" in message
            assert "--forcerun certify" in message


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def counts(counted):
    return counted.copy()


def in_file(counts, name):
    return counts["file"] == f"{name}.parquet"


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        ({**SAMPLING, "n": 1000}, "has 8 + 16 samples (fixed), this configuration wants 8 + 1000 (fixed)"),
        ({**SAMPLING, "n0": 4}, "this configuration wants 4 + 16 (fixed)"),
        ({**SEQUENTIAL, "n": 16}, "this configuration wants 8 + 16 (sequential)"),
    ],
)
@pytest.mark.parametrize("partial", [False, True])
def test_other_numbers_of_samples_are_refused(folder, counts, sampling, told, partial):
    folder.refuses(counts, told, sampling=sampling, partial=partial)


def test_watched_counts_are_no_fixed_ones(folder, counts):
    """Of as many samples: those that were looked at may have stopped there because of what was seen."""
    folder.refuses(counts.assign(stopped="answered"), "has 8 + 16 samples (answered)")


def test_sequential_counts_may_be_fewer_than_asked_for(folder, counts):
    stopped = counts.assign(stopped="answered")
    assert len(folder.merge(stopped, sampling=SEQUENTIAL)) == len(counts)


def test_counts_without_selection_are_a_label_runs_and_no_others(folder, counts):
    """A class that was never selected must not be certified as if it had been, or a label's counts by a bound."""
    by_label = {**SEQUENTIAL, "stop": {"questions": [{"label": "majority"}]}}
    selected = counts.assign(stopped="answered")
    asked = selected.assign(n0=0, counts_selection=[[0] * len(row) for row in counts["counts_selection"]])
    assert len(folder.merge(asked, sampling=by_label)) == len(counts)
    folder.refuses(asked, "this configuration wants 8 + 100 (sequential)", sampling=SEQUENTIAL)
    folder.refuses(selected, "this configuration wants 8 + 100 (sequential)", sampling=by_label)


@pytest.mark.parametrize("stopped", ["cap", "raised cap"])
def test_a_cap_that_is_another_configurations_is_refused(folder, counts, stopped):
    folder.refuses(counts.assign(stopped=stopped), f"has 8 + 16 samples ({stopped})", sampling=SEQUENTIAL)


def test_counts_that_do_not_add_up_are_refused(folder, counts):
    counts.at[0, "counts_estimation"] = [SIZE.n + 1, *[0] * (len(counts.at[0, "counts_estimation"]) - 1)]
    folder.refuses(counts, "the estimation counts of", "don't add up")


def test_other_labels_are_refused(folder, counts):
    images = IMAGES.table.assign(label=IMAGES.table["label"] + 1)
    folder.refuses(counts, "was counted with another label", images=images)


def test_whole_counts_are_put_together_in_order(folder, counts):
    merged = folder.merge(counts)
    expected = counts.drop(columns="file").sort_values(KEY, ignore_index=True)
    pd.testing.assert_frame_equal(merged[KEY], expected[KEY])
    assert merged["counts_estimation"].map(list).tolist() == expected["counts_estimation"].tolist()
    shuffled = counts.sample(frac=1, random_state=0).assign(file=[f"{job}.parquet" for job in range(12)])
    for file in folder.path.iterdir():
        file.unlink()
    pd.testing.assert_frame_equal(folder.merge(shuffled), merged)


def test_two_identities_in_one_setting(folder, counts):
    counts.loc[in_file(counts, "adds1"), "identity"] = "0" * 16
    told = "adds at sigma 0.6 with 2 vote(s) were drawn with another network, another setting or older code"
    folder.refuses(counts, told, files=["adds1.parquet"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, "drawn with seed 1 instead of 0."),
        ({"guidance_scale": 0.5}, "drawn with guidance_scale 0.5 instead of 0.8."),
        ({"seed": 1, "guidance_scale": 0.5}, "drawn with seed 1 instead of 0 and guidance_scale 0.5 instead of 0.8."),
    ],
)
def test_another_seed_or_scale_is_told_with_both_values(folder, counts, changes, told):
    of_other = {**changes, "identity": identity_of(**changes)["hash"]}
    counts.loc[in_file(counts, "adds0"), list(of_other)] = list(of_other.values())
    folder.refuses(counts, "counts of adds at sigma 0.6 with 2 vote(s) were", told, files=["adds0.parquet"])


def test_an_option_of_a_method_is_told_with_both_values(folder, counts):
    """The configuration asks for another start than the one that was drawn with."""
    asked = [*IDENTITIES[:2], {**IDENTITIES[2], "identity": {**RS, "start": "exact"}}]
    counts["start"] = "grid"
    told = "rs at sigma 0.6 with 1 vote(s) were drawn with start grid instead of exact."
    folder.refuses(counts, told, identities=asked, files=["rs0.parquet", "rs1.parquet"])


def test_another_network_under_the_same_configuration(folder, counts):
    exchanged = {**MODELS, "classifier": {"sha256": "e"}}
    files = ["adds0.parquet", "adds1.parquet"]
    folder.refuses(counts, "drawn with another network", models=exchanged, files=files)
    without_adds = counts[counts["method"] == "rs"].assign(file="rs.parquet")
    for file in folder.path.iterdir():
        file.unlink()
    exchanged = {**MODELS, "diffusion": {"sha256": "e"}}
    assert len(folder.merge(without_adds, identities=IDENTITIES[2:], models=exchanged)) == 4, "RS doesn't read it"


def test_many_files_are_named_in_part(folder, counts):
    counts["file"] = counts["method"] + counts["number"].astype(str) + ".parquet"
    named = ", ".join(str(folder.path / f"adds{number}.parquet") for number in (4, 5, 6))
    folder.refuses(counts, f"They are in {named} and 1 more.", models={**MODELS, "classifier": {"sha256": "e"}})


def on_gpu(counts, rows, device="A100"):
    """Return the counts with some rows as a GPU would have left them."""
    identity = whole_identity(CONFIGURED, MODELS, "cuda")["hash"]
    changed = counts.copy()
    changed.loc[rows, ["device_kind", "device", "identity"]] = ["cuda", device, identity]
    return changed


def test_two_kinds_of_device_in_one_setting(folder, counts):
    one_image = in_file(counts, "adds1") & (counts["number"] == 7)
    told = "adds at sigma 0.6 with 2 vote(s) was drawn partly on cpu and partly on cuda, which round differently."
    folder.refuses(on_gpu(counts, one_image), told, files=["adds1.parquet"])


def test_two_models_of_one_kind_of_device_are_fine(folder, counts):
    first, second = in_file(counts, "adds0"), in_file(counts, "adds1")
    merged = folder.merge(on_gpu(on_gpu(counts, first), second, "H100"))
    assert set(merged["device"]) >= {"A100", "H100"}
    assert set(merged.loc[merged["method"] == "rs", "device_kind"]) == {"cpu"}, "settings may have one each"


def test_other_pixels(folder, counts):
    counts.loc[counts["number"] == 5, "pixels"] = "0" * 16
    files = ["adds0.parquet", "adds_oneshot0.parquet", "rs0.parquet"]
    folder.refuses(counts, "samples of other pixels than image 5 has", files=files)


@pytest.mark.parametrize("share", [1.01, np.nan])
def test_more_than_the_privacy_budget(folder, counts, share):
    counts.loc[in_file(counts, "adds1"), "budget_share"] = share
    folder.refuses(counts, f"spent {share} of its privacy budget: it certifies nothing", files=["adds1.parquet"])
    with pytest.raises(ValueError, match="spent more than its privacy budget: it certifies nothing"):
        certificates(counts, alpha=0.05, mode="fixed", bounds=["cohen"])


def test_missing_rows(folder, counts):
    missing = counts[~in_file(counts, "rs1")]
    folder.refuses(missing, "2 counts don't match the experiment", "is missing", "rs", error=ValueError)
    assert len(folder.merge(missing, partial=True)) == 10


def test_a_missing_setting(folder, counts):
    missing = counts[counts["method"] != "rs"]
    folder.refuses(missing, "4 counts don't match the experiment", "is missing", error=ValueError)
    assert len(folder.merge(missing, partial=True)) == 8


@pytest.mark.parametrize("partial", [False, True])
def test_rows_that_are_not_part_of_the_experiment(folder, counts, partial):
    told = ("don't match the experiment", "is not part of this experiment")
    fewer = IMAGES.table.head(3)
    folder.refuses(counts, "3 counts", *told, images=fewer, error=ValueError, partial=partial)
    folder.refuses(counts, "4 counts", *told, identities=IDENTITIES[:2], error=ValueError, partial=partial)


def test_rows_that_are_there_twice(folder, counts):
    twice = pd.concat([counts, counts[in_file(counts, "rs0")].assign(file="again.parquet")])
    for partial in (False, True):
        folder.refuses(twice, "'number': 4} are there more than once, in", error=ValueError, partial=partial)


def test_partial_results_are_checked_as_whole_ones(folder, counts):
    part = counts[~in_file(counts, "rs1") & ~in_file(counts, "adds0")].copy()
    part.loc[in_file(part, "adds1"), ["seed", "identity"]] = [1, "0" * 16]
    folder.refuses(part, "seed 1 instead of 0", files=["adds1.parquet"], partial=True)


@pytest.mark.parametrize("content", [b"", b"not parquet", b"PAR1 cut off"])
def test_unreadable_files_are_named(folder, counts, content):
    broken = folder.path / "broken.parquet"
    broken.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{re.escape(str(broken))} is not a counts file.*delete it and run again"):
        folder.merge(counts)


def test_a_file_of_something_else_is_named(folder, counts):
    other = folder.path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(other)
    with pytest.raises(ValueError, match=rf"{re.escape(str(other))} is not a counts file: it has no column budget_sha"):
        folder.merge(counts)


# Images that nobody labelled


@pytest.fixture
def unlabelled(schedule, tmp_path):
    """Counts of two images without labels: all samples of the first say 1, those of the second are split."""
    jobs = Jobs(schedule, tmp_path / "ledger")
    counts = jobs(images_of(4, 5, label=pd.NA), Variant("rs", 1), RS_IDENTITY).assign(seconds=0.0)
    return counts.assign(counts_selection=[[0, 8], [5, 3]], counts_estimation=[[0, 16], [8, 8]])


def test_labels_may_be_missing(folder, unlabelled):
    images = images_of(4, 5, label=pd.NA).table
    merged = folder.merge(unlabelled.assign(file="rs.parquet"), images=images, identities=IDENTITIES[2:])
    assert merged["label"].isna().all()
    certified = certificates(merged, alpha=0.05, mode="fixed", bounds=["cohen", "pair"])
    assert certified["correct"].isna().all()
    assert certified["label"].isna().all()
    assert certified["prediction"].tolist() == [1, 0] * 2


def test_what_is_certified_counts_where_nobody_knows_what_is_right(unlabelled):
    certified = certificates(unlabelled, alpha=0.05, mode="fixed", bounds=["pair"])
    assert certified["abstained"].tolist() == [False, True]
    assert is_certified(certified).tolist() == [True, False]
    assert is_certified(certified, radius=10.0).tolist() == [False, False]
    assert accuracy_table(is_certified(certified), certified)["accuracy_percent"].tolist() == [50]
    assert value_at(accuracy_steps(certified), np.array([0.0, 10.0])).tolist() == [50, 0]


@pytest.mark.parametrize(("labels", "right"), [([1, 0], [True, True]), ([0, 0], [False, True])])
def test_labels_say_what_is_right(unlabelled, labels, right):
    certified = certificates(unlabelled.assign(label=labels), alpha=0.05, mode="fixed", bounds=["pair"])
    assert certified["correct"].dtype == bool
    assert certified["correct"].tolist() == right
    assert is_certified(certified).tolist() == [right[0], False]


def test_counts_that_were_looked_at_need_bounds_for_it(unlabelled):
    stopped = unlabelled.assign(stopped="answered")
    with pytest.raises(ValueError, match="sampled sequentially: they can't be certified with mode 'fixed'"):
        certificates(stopped, alpha=0.05, mode="fixed", bounds=["cohen"])
    assert len(certificates(stopped, alpha=0.05, mode="sequential", bounds=["cohen"])) == 2
