"""A sample that is on record is never drawn again, whichever list, job, experiment or site it was drawn for."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from adds.data.images import Images, describe
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import evenly_spaced
from adds.experiment import LEDGERS
from adds.machine.devices import CPU
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.models.weights import describe_model, sha256_of
from adds.monitor.ledgers import differences, families, main, unused, why
from adds.registry import ROUNDING, Variant
from adds.results.certified import certificates
from adds.sampling.counting import Request, refuse_to_draw
from adds.sampling.job import run_job, whole_identity
from adds.sampling.ledger import FamilyLedgers, Ledger, open_recorded, read_header
from adds.sampling.sampler import Sampler
from adds.sampling.stopping import LABEL_QUESTIONS, Certified, SampleSize, Stop
from tests.conftest import GaussianWorld, sign_of_first_coordinate
from tests.test_experiment import digits

LEADER = Variant("adds", 2)
MODELS = {"diffusion": {"sha256": "d"}, "classifier": {"sha256": "c"}}
CONFIGURED = {"family": "adds", "sigma": 0.6, "seed": 0, "guidance_scale": 0.8}
SIZE = SampleSize(n0=8, n=16)
CHUNK = 8
EACH = SIZE.n0 + SIZE.n


def identity_of(**changes):
    return whole_identity({**CONFIGURED, **changes}, MODELS, "cpu")


IDENTITY = identity_of()


def images_of(*numbers, label=0, salt=0, stored=None):
    """Images whose pixels are known by their number (and by ``salt``), unless they are given."""
    if stored is None:
        stored = [np.random.default_rng([number, salt]).integers(0, 256, (1, 8, 8), np.uint8) for number in numbers]
    rows = pd.DataFrame({"number": numbers, "label": label})
    return Images(describe(rows, np.stack(stored), {}, classes=2), np.stack(stored))


def sampler_in_closed_form(schedule, variant=LEADER, **settings):
    pipeline = Pipeline(
        Denoiser(GaussianWorld(schedule, tau=0.3), schedule, batch_size=16),
        BatchedClassifier(sign_of_first_coordinate, classes=2, batch_size=16),
        schedule.respaced(evenly_spaced(20, 1000)),
    )
    return Sampler(variant.method, pipeline, 0.6, variant.votes, chunk_size=CHUNK, **settings)


def job(sampler, images, ledgers, size=SIZE, draw=None, at_once=1):
    """What a certification job does; its seconds are the only thing that may differ from run to run."""
    draw, made_by = draw or sampler.draw, {"identity": ledgers.identity, "device": CPU}
    counts = run_job(sampler.counter, images, draw, at_once=at_once, size=size, ledgers=ledgers, **made_by)
    ledgers.close()
    return counts.drop(columns="seconds")


class Jobs:
    """Runs jobs with one store, and notes which samples they draw."""

    def __init__(self, schedule, store):
        self.schedule, self.store, self.drawn, self.draws = schedule, store, [], []

    def __call__(
        self, images, variant=LEADER, identity=IDENTITY, *, store=None, reads_only=False, size=SIZE, at_once=1
    ):
        sampler = sampler_in_closed_form(self.schedule, variant, seed=identity["seed"])

        def draw(requests):
            self.draws.append(len(requests))
            for asked in requests:
                samples = range(asked.first, asked.first + asked.count)
                self.drawn += [(asked.picture.number, asked.stage, sample) for sample in samples]
            return sampler.draw(requests)

        ledgers = FamilyLedgers(store or self.store, identity, list(images), variant, LEADER, reads_only=reads_only)
        return job(sampler, images, ledgers, size, refuse_to_draw if reads_only else draw, at_once)

    def drawn_by(self, *arguments, **options):
        """Run a job and return how many samples it drew."""
        before = len(self.drawn)
        self(*arguments, **options)
        return len(self.drawn) - before

    def files(self):
        return sorted(self.store.rglob("*.jsonl"))


@pytest.fixture
def jobs(schedule, tmp_path):
    return Jobs(schedule, tmp_path / "ledger")


@pytest.fixture(scope="module")
def first(schedule, tmp_path_factory):
    jobs = Jobs(schedule, tmp_path_factory.mktemp("first"))
    assert jobs.drawn_by(images_of(0, 1, 2, 3)) == 4 * EACH
    return jobs


@pytest.fixture
def ran(first, jobs):
    """Jobs whose store holds the samples of images 0 to 3."""
    shutil.copytree(first.store, jobs.store)
    jobs.drawn = list(first.drawn)
    return jobs


def by_number(counts):
    return counts.sort_values("number", ignore_index=True)


@pytest.mark.parametrize("numbers", [(1, 2, 3), (0, 1, 2), (2, 0, 3, 1), (0, 1, 2, 3)])
def test_a_list_that_is_shorter_or_in_another_order_draws_nothing(ran, schedule, tmp_path, numbers):
    counts = ran(images_of(*numbers))
    assert len(ran.drawn) == 4 * EACH
    anew = Jobs(schedule, tmp_path / "anew")(images_of(*numbers))
    pd.testing.assert_frame_equal(counts, anew)


def test_images_split_over_jobs_differently_draw_nothing(ran, schedule, tmp_path):
    images = images_of(0, 1, 2, 3)
    parts = [ran(images.part(*bounds)) for bounds in ((0, 1), (1, 4))]
    assert len(ran.drawn) == 4 * EACH
    assert len(ran.files()) == 1, "jobs that found everything leave no file"
    split = Jobs(schedule, tmp_path / "split")
    for first in range(4):
        split(images.part(first, first + 1))
    assert len(split.files()) == 4
    assert split.drawn_by(images) == 0
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), split(images))


def test_only_images_that_are_new_are_drawn(ran):
    ran(images_of(9, 0, 1, 2, 3))
    assert {number for number, _, _ in ran.drawn[4 * EACH :]} == {9}
    assert len(ran.drawn) == 5 * EACH
    assert ran.drawn_by(images_of(9)) == 0


def test_only_samples_that_are_missing_are_drawn(ran):
    more = SampleSize(n0=SIZE.n0, n=SIZE.n + 4)
    assert ran.drawn_by(images_of(1, 2), size=more) == 2 * 4
    assert ran.drawn_by(images_of(2), size=more) == 0, "two files hold its samples now"
    assert len(ran.drawn) == len(set(ran.drawn))


def test_another_experiment_with_the_same_identity_draws_nothing(jobs):
    """The name, the number of images and how they are shared out are none of a sample's business."""
    other = digits(experiment="other", images_per_job=1, dataset={"images": 3}, sampling={"n": 900})
    identities = []
    for experiment in (digits(), other):
        setting = experiment.setting("adds", "0.5", 1)
        assert experiment.job(setting, experiment.shards()[0])["ledgers"] == LEDGERS
        identities.append(whole_identity(experiment.identity(setting), MODELS, "cpu"))
    assert jobs.drawn_by(images_of(0), identity=identities[0]) == EACH
    assert jobs.drawn_by(images_of(0), identity=identities[1]) == 0


def test_ledgers_of_two_sites_copied_together_are_one(jobs, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    apart = [jobs(images_of(0, 1), store=here), jobs(images_of(2, 3), store=there)]
    for site in (here, there):
        shutil.copytree(site, jobs.store, dirs_exist_ok=True)
    before = len(jobs.drawn)
    together = jobs(images_of(3, 2, 1, 0))
    assert len(jobs.drawn) == before
    pd.testing.assert_frame_equal(by_number(together), pd.concat(apart, ignore_index=True))


@pytest.mark.parametrize("member", [Variant("adds", 1), Variant("adds_oneshot", 1)])
def test_members_draw_nothing_after_their_leader(ran, schedule, tmp_path, member):
    read = ran(images_of(0, 1, 2, 3), member, reads_only=True)
    assert len(ran.drawn) == 4 * EACH
    assert len(ran.files()) == 1
    alone = Jobs(schedule, tmp_path / "alone")
    pd.testing.assert_frame_equal(read, alone(images_of(0, 1, 2, 3), member))
    assert len(alone.drawn) == 4 * EACH


def test_more_votes_than_are_on_record_are_drawn(ran):
    assert ran.drawn_by(images_of(0, 1), Variant("adds", 3)) == 2 * EACH
    assert ran.drawn_by(images_of(0, 1)) == 0


def test_sequential_sampling_reads_what_a_fixed_run_drew(ran, schedule, tmp_path):
    size = SampleSize(n0=8, n=24, alpha=0.05, stop=Stop([Certified("pair", 0.0)]))
    alone = Jobs(schedule, tmp_path / "alone")(images_of(0, 1, 2, 3), size=size)
    before = len(ran.drawn)
    pd.testing.assert_frame_equal(ran(images_of(0, 1, 2, 3), size=size), alone)
    assert {sample for _, _, sample in ran.drawn[before:]} <= set(range(16, 24))


def by_label(n, question="majority"):
    return SampleSize(n0=8, n=n, alpha=0.05, stop=Stop([LABEL_QUESTIONS[question]], futility=0.0))


def verdicts(counts):
    table = certificates(counts.assign(seconds=0.0), alpha=0.05, mode="sequential", bounds=["label"])
    return table.set_index("number")


HARD = SampleSize(n0=8, n=16, alpha=0.05, stop=Stop([LABEL_QUESTIONS["majority"]], at_least=16, futility=0.0))
"""Draws all 16 samples of every image."""


def test_a_run_that_asks_about_labels_selects_nothing(jobs):
    counts = jobs(images_of(0, 1, 2, 3), size=HARD)
    assert {stage for _, stage, _ in jobs.drawn} == {"estimation"}
    assert (counts["n0"] == 0).all()
    assert set(counts["stopped"]) <= {"answered", "cap"}
    found = verdicts(counts)
    assert (found["prediction"] == found["label"]).all()
    assert (found["radius"] == 0).all()
    with pytest.raises(ValueError, match="has no label, and"):
        jobs(images_of(5, label=None), size=HARD)


def test_a_cap_that_was_raised_has_the_evidence_only(jobs, monkeypatch):
    """What was looked at with one cap must not be tested at another as if nobody had."""
    images = images_of(0, 1, 2, 3)
    open_ = by_label(16)
    monkeypatch.setattr(LABEL_QUESTIONS["majority"].__class__, "answer", lambda *_: None)
    assert set(jobs(images, size=open_)["stopped"]) == {"cap"}
    assert set(jobs(images, size=open_)["stopped"]) == {"cap"}, "again, from the ledger"
    raised = jobs(images, size=by_label(24))
    assert set(raised["stopped"]) == {"raised cap"}
    lowered = jobs(images, size=by_label(8))
    assert set(lowered["stopped"]) == {"raised cap"}, "a smaller one may have been chosen by looking as well"
    assert set(jobs(images, Variant("adds", 1), size=open_)["stopped"]) == {"cap"}, "the family's cap is one"


def test_the_caps_own_test_is_for_caps_that_were_fixed(jobs):
    """13 of 16 pass Clopper and Pearson's test at alpha / 2 = 0.025, and the evidence doesn't reach 40."""
    counts = jobs(images_of(0), size=HARD).assign(counts_estimation=[[13, 3]])
    assert not verdicts(counts.assign(stopped="cap"))["abstained"].any()
    for stopped in ("raised cap", "futile", "answered"):
        assert verdicts(counts.assign(stopped=stopped))["abstained"].all()


def test_samples_that_nobody_capped_have_no_cap(ran):
    """A fixed run's samples were looked at before the cap was written down."""
    assert set(ran(images_of(0, 1), size=replace(HARD, n=24, stop=replace(HARD.stop, at_least=24)))["stopped"]) <= {
        "answered",
        "raised cap",
    }


def test_a_killed_run_keeps_its_cap(jobs):
    images = images_of(0, 1, 2)
    whole = jobs(images, size=HARD)
    kept = jobs.files()[0].read_bytes().splitlines(keepends=True)
    jobs.files()[0].write_bytes(b"".join(kept[:2]))
    pd.testing.assert_frame_equal(jobs(images, size=HARD), whole)


def test_other_pixels_under_the_same_number_are_drawn_anew(ran, schedule, tmp_path):
    changed = images_of(0, 1, salt=1)
    counts = ran(changed)
    assert len(ran.drawn) == 6 * EACH
    pd.testing.assert_frame_equal(counts, Jobs(schedule, tmp_path / "anew")(changed))


@pytest.mark.parametrize("identity", [identity_of(seed=1), identity_of(code="newer"), identity_of(sigma=0.7)])
def test_another_identity_is_drawn_anew(ran, identity):
    assert ran.drawn_by(images_of(0), identity=identity) == EACH
    assert ran.drawn_by(images_of(0), identity=identity) == 0
    assert ran.drawn_by(images_of(0)) == 0, "both are kept"


@pytest.mark.parametrize("changes", [{"models": {**MODELS, "classifier": {"sha256": "e"}}}, {"device": "cuda"}])
def test_another_network_or_kind_of_device_is_another_identity(changes):
    assert whole_identity(**{"identity": CONFIGURED, "models": MODELS, "device": "cpu", **changes}) != IDENTITY
    assert identity_of()["hash"] == IDENTITY["hash"]


def test_samples_of_a_gpu_that_rounds_elsewhere_are_others(monkeypatch):
    """Those of the CPU are what they were, and so are those of methods without a diffusion model."""

    def hashes():
        without = {"classifier": {"sha256": "c"}}
        return [
            whole_identity(CONFIGURED, models, device)["hash"]
            for device, models in (("cuda", {"diffusion": {"sha256": "d"}}), ("cuda", without), ("cpu", MODELS))
        ]

    before = hashes()
    monkeypatch.setitem(ROUNDING, "cuda", ROUNDING["cuda"] + 1)
    assert [one != other for one, other in zip(hashes(), before, strict=True)] == [True, False, False]


def test_a_job_that_only_reads_says_what_is_missing_and_leaves_nothing(ran, tmp_path):
    with pytest.raises(LookupError, match=r"selection samples 0 to 7 of image 9 are not on record.*--forcerun certify"):
        ran(images_of(0, 9), reads_only=True)
    longer = SampleSize(n0=8, n=20)
    with pytest.raises(LookupError, match="estimation samples 16 to 19 of image 0 are not on record"):
        ran(images_of(0), reads_only=True, size=longer)
    assert len(ran.files()) == 1
    with pytest.raises(LookupError):
        ran(images_of(0), reads_only=True, store=tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_as_many_jobs_as_files(jobs):
    for first in range(0, 6, 2):
        jobs(images_of(first, first + 1))
        jobs(images_of(first, first + 1), Variant("adds_oneshot", 1), reads_only=True)
        jobs(images_of(first, first + 1), Variant("adds", 1))
    assert len(jobs.files()) == 3
    assert len(list(jobs.store.rglob("*"))) == 3 + 1, "and one folder"


def test_a_file_lists_its_images(ran):
    [path] = ran.files()
    expected = sorted([picture.number, picture.checksum] for picture in images_of(0, 1, 2, 3))
    assert read_header(path) == {"identity": IDENTITY, "images": expected}


def chunk_in(schedule):
    [picture] = images_of(0)
    return sampler_in_closed_form(schedule).draw([Request(picture, "estimation", 8, 3)])[0]


def test_a_chunk_comes_back_as_it_was(schedule, tmp_path):
    drawn = chunk_in(schedule)
    assert len(drawn.stop_timestep) == len(drawn.spent_before) == 3, "ADDS tells where guidance ended"
    varied = replace(
        drawn,
        first_sample=11,
        stop_timestep=np.array([0, 49, 999], np.uint16),
        spent_before=np.array([0, 333, 1000], np.uint16),
    )
    none = np.empty(0, np.uint16)
    plain = replace(drawn, stage="selection", contained={}, stop_timestep=none, spent_before=none)
    ledger = Ledger(tmp_path / "one.jsonl", IDENTITY)
    ledger.append([drawn, varied])
    ledger.append([plain])
    ledger.close()
    found = Ledger(tmp_path / "one.jsonl", IDENTITY, read_only=True)
    back = found.chunks(0, drawn.pixels, "estimation") + found.chunks(0, drawn.pixels, "selection")
    assert len(back) == len(found.all_chunks()) == 3
    np.testing.assert_equal([vars(chunk) for chunk in back], [vars(chunk) for chunk in (drawn, varied, plain)])
    assert list(back[0].contained) == ["adds_oneshot"]


def test_a_ledger_opened_to_be_read_is_not_written(schedule, tmp_path):
    ledger = Ledger(tmp_path / "one.jsonl", IDENTITY, read_only=True)
    with pytest.raises(ValueError, match="opened to be read only"):
        ledger.append([chunk_in(schedule)])
    assert not ledger.path.exists()


@pytest.mark.parametrize("share", [1.0001, -0.1, float("nan")])
def test_samples_beyond_their_privacy_budget_are_refused(schedule, share):
    with pytest.raises(ValueError, match=f"image 0 has samples that spent {share} of their privacy budget"):
        replace(chunk_in(schedule), budget_share=share)


def test_a_record_beyond_its_privacy_budget_is_refused(ran):
    """One that was written by other means, since ours can't write it: its checksum is right."""
    [path] = ran.files()
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines))
    ledger = Ledger(path, IDENTITY)
    ledger._write(ledger._file, {**json.loads(last.partition(b" ")[2]), "budget_share": 1.5})
    ledger.close()
    for reads_only in (True, False):
        with pytest.raises(ValueError, match=r"spent 1\.5 of their privacy budget: they certify nothing"):
            ran(images_of(0), reads_only=reads_only)


def test_recorded_samples_are_found_by_the_identitys_hash(ran):
    ran(images_of(7))
    ran(images_of(8), identity=identity_of(seed=1))
    numbers = {chunk.image for ledger in open_recorded(ran.store, IDENTITY["hash"]) for chunk in ledger.all_chunks()}
    assert numbers == {0, 1, 2, 3, 7}
    assert open_recorded(ran.store, "0" * 16) == []


# What the monitor says of a store


def test_families_are_told_with_what_they_hold(ran):
    ran(images_of(4))
    ran(images_of(4), identity=identity_of(seed=1))
    path = ran.files()[0]
    path.write_bytes(path.read_bytes() + b"0bad a record that is being writ")
    found = {family.identity["seed"]: family for family in families(ran.store)}
    assert {seed: family.samples for seed, family in found.items()} == {0: 5 * EACH, 1: EACH}
    assert found[0].size == sum(file.stat().st_size for file in found[0].folder.iterdir())
    assert found[1].configured == {**CONFIGURED, "seed": 1}
    assert families(ran.store / "nowhere") == []


def test_differences_name_the_key_and_both_values():
    old = {"seed": 0, "diffusion": {"steps": 20, "unet": {"size": 8}}, "start": "grid"}
    new = {"seed": 1, "diffusion": {"steps": 20, "unet": {"size": 16}}, "code": "b"}
    assert list(differences(old, new)) == [
        "code None (now b)",
        "diffusion.unet.size 8 (now 16)",
        "seed 0 (now 1)",
        "start grid (now None)",
    ]
    assert list(differences(old, old)) == []


def test_why_says_what_can_be_used_and_what_keeps_the_rest_from_use(jobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment, *others = (digits(methods={"rs": {"votes": [1]}}, seed=seed) for seed in (0, 1))
    setting = experiment.setting("rs", "0.5", 1)
    for drawing in (experiment, *others):
        identity = whole_identity(drawing.identity(setting), {"classifier": {"sha256": "c"}}, "cpu")
        jobs(images_of(0), setting.variant, identity)

    def told():
        lines = why(experiment, jobs.store).splitlines()
        place = lines.index(
            "RS, clean classifier at sigma 0.5: this configuration wants up to 64 samples of rs with 1 vote(s)"
        )
        found = [line for line in lines if "on record" in line]
        assert found == lines[place + 1 : place + 3], "what is there is RS's and of this sigma"
        return sorted(line.removeprefix(f"  {EACH} samples on record (cpu): ") for line in found)

    assert told() == ["can be used", "other seed 1 (now 0)"]
    folder = tmp_path / experiment.folder("classifier")
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"other weights")
    describe_model(folder, {})
    exchanged = f"models.classifier.sha256 c (now {sha256_of(folder / 'weights')})"
    assert told() == [f"other {exchanged}", f"other seed 1 (now 0); {exchanged}"]


@pytest.fixture
def results(schedule, tmp_path):
    """A folder with two experiments' plans, and ledgers of three identities."""
    jobs = Jobs(schedule, tmp_path / LEDGERS)
    for seed in range(3):
        jobs(images_of(0), identity=identity_of(seed=seed))
    for name, seeds in {"one": [0], "two": [0, 1]}.items():
        plan = tmp_path / "results" / name / "plan.json"
        plan.parent.mkdir()
        plan.write_text(json.dumps({"settings": [{"identity": {**CONFIGURED, "seed": seed}} for seed in seeds]}))
    return tmp_path / "results"


def seeds_in(results):
    return sorted(family.identity["seed"] for family in families(results / "ledger"))


def test_ledgers_that_no_experiment_uses(results):
    assert [family.identity["seed"] for family in unused(results)] == [2]
    (results / "two/plan.json").unlink()
    assert sorted(family.identity["seed"] for family in unused(results)) == [1, 2]


def test_unused_ledgers_are_listed_and_removed_only_when_asked(results, monkeypatch, capsys):
    monkeypatch.chdir(results.parent)
    [family] = unused()
    for arguments, left, end in (([], [0, 1, 2], ""), (["--remove"], [0, 1], ", removed")):
        monkeypatch.setattr(sys, "argv", ["ledgers", *arguments])
        main()
        told = capsys.readouterr().out
        assert f"{EACH} samples  {family.folder}" in told
        assert told.count("samples") == 1
        assert f"1 unused ledgers, {family.size / 1e6:.2f} MB{end}\n" in told
        assert seeds_in(results) == left
    main()
    assert capsys.readouterr().out == "0 unused ledgers, 0.00 MB, removed\n"
    assert seeds_in(results) == [0, 1]


def test_without_any_plan_nothing_is_removed(tmp_path):
    command = [sys.executable, "-m", "adds.monitor.ledgers"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no results/*/plan.json tells which samples are in use" in done.stderr


SIDE_BY_SIDE = SampleSize(n0=16, n=64, stop=Stop([Certified("cohen", 0.0)], at_least=8))


@pytest.mark.parametrize("size", [SIZE, SIDE_BY_SIDE], ids=["fixed", "sequential"])
def test_jobs_draw_several_images_at_once(jobs, tmp_path, size):
    """Counts are those of one image after the other, whenever each of them stops; so is every sample on record."""
    images = images_of(*range(5))
    alone = jobs(images, size=size)
    drawn, draws = sorted(jobs.drawn), len(jobs.draws)
    together = jobs(images, store=tmp_path / "together", size=size, at_once=3 * CHUNK)
    pd.testing.assert_frame_equal(together, alone)
    assert sorted(jobs.drawn) == sorted(2 * drawn)
    assert len(jobs.draws) - draws < draws / 2
    assert max(jobs.draws[draws:]) == 3
    assert size == SIZE or together["n"].nunique() > 1
    assert jobs.drawn_by(images, store=tmp_path / "together", size=size) == 0
