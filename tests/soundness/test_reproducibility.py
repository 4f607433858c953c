"""Soundness 6, reproducibility: counts depend on neither batches, chunks nor interruptions."""

import numpy as np
import pytest
import torch

from adds.data.images import Picture
from adds.registry import Variant
from adds.sampling.counting import Request
from adds.sampling.ledger import FamilyLedgers, folder_name
from adds.sampling.sampler import Sampler
from adds.sampling.stopping import Certified, SampleSize, Stop
from tests.conftest import unet_pipeline
from tests.test_ledger import IDENTITY, identity_of, images_of, job

SETTINGS = [
    ("rs", 1),
    ("carlini", 1),
    ("densepure", 5),
    ("adds", 1),
    ("adds", 5),
    ("adds_oneshot", 1),
]
N = 40


@pytest.fixture
def picture(image):
    return Picture.of(image, number=3)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "ledger"


def sampler_of(schedule, unet, method="carlini", votes=1, batch_size=32, **changes):
    pipeline = unet_pipeline(schedule, unet, batch_size=batch_size)
    return Sampler(method, pipeline, sigma=0.7, votes=votes, **{"chunk_size": 25, **changes})


def tally_of(sampler, picture, n=N, store=None, *, identity=IDENTITY, images=None, **options):
    """Count, with the ledgers of a store where one is given."""
    variant = Variant(sampler.method, sampler.votes)
    ledgers = store and FamilyLedgers(store, identity, images or [picture], variant, Variant("adds", 5))
    try:
        return sampler.count(picture, stage="estimation", limit=n, ledgers=ledgers, **options)
    finally:
        if ledgers:
            ledgers.close()


def counts_of(*arguments, **options):
    return tally_of(*arguments, **options).counts.tolist()


def only_file(store):
    [path] = store.rglob("*.jsonl")
    return path


def lines_of(store):
    return only_file(store).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(("method", "votes"), SETTINGS)
def test_same_counts_for_every_batch_and_chunk_size(schedule, unet, picture, method, votes):
    expected = counts_of(sampler_of(schedule, unet, method, votes), picture)
    assert sum(expected) == N
    assert max(expected) < N, "the test needs a classifier that is not always of one mind"
    for batch_size, chunk_size in ((1, 25), (7, 25), (64, 40), (7, 13)):
        sampler = sampler_of(schedule, unet, method, votes, batch_size, chunk_size=chunk_size)
        assert counts_of(sampler, picture) == expected


class KilledError(Exception):
    pass


@pytest.mark.parametrize("chunks_before_the_kill", [0, 1])
@pytest.mark.parametrize(("method", "votes"), [("adds", 5), ("densepure", 5)])
def test_interrupted_runs_end_with_the_same_counts(
    schedule, unet, picture, store, method, votes, chunks_before_the_kill
):
    sampler = sampler_of(schedule, unet, method, votes)
    expected = tally_of(sampler, picture)
    drawn = []

    def die(count):
        if len(drawn) == chunks_before_the_kill:
            raise KilledError
        drawn.append(count)

    with pytest.raises(KilledError):
        tally_of(sampler, picture, store=store, progress=die)
    before = sampler.pipeline.denoiser.evaluations
    tally = tally_of(sampler, picture, store=store)
    assert tally.counts.tolist() == expected.counts.tolist()
    assert sampler.pipeline.denoiser.evaluations - before < tally.evaluations, "recorded chunks are not redrawn"
    assert tally.evaluations == expected.evaluations


def test_every_possible_cut_of_the_file_is_survived(schedule, unet, picture, store):
    sampler = sampler_of(schedule, unet, "rs")
    expected = counts_of(sampler, picture, store=store)
    path = only_file(store)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert counts_of(sampler, picture, store=store) == expected
        assert len(path.read_bytes().splitlines()) == 3


@pytest.mark.parametrize("line", [0, 1, 2])
def test_damage_in_the_middle_is_noticed(schedule, unet, picture, store, caplog, line):
    sampler = sampler_of(schedule, unet)
    expected = counts_of(sampler, picture, store=store)
    lines = lines_of(store)
    damaged = bytearray(lines[line])
    damaged[len(damaged) // 2] ^= 1
    only_file(store).write_bytes(b"".join([*lines[:line], damaged, *lines[line + 1 :]]))
    assert counts_of(sampler, picture, store=store) == expected
    assert len(lines_of(store)) == 3
    assert lines_of(store)[:line] == lines[:line], "what comes before the damage is kept"
    assert ("ends in a damaged record" if line else "is not a ledger of these parameters") in caplog.text


def test_a_ledger_of_other_parameters_is_not_used(schedule, unet, picture, store):
    """Not even where it has the name of ours: a folder that was renamed, or copied to the wrong place."""
    counts_of(sampler_of(schedule, unet, seed=1), picture, store=store, identity=identity_of(seed=1))
    foreign = only_file(store).read_bytes()
    other = identity_of(seed=2)
    only_file(store).parent.rename(store / folder_name(other))
    sampler = sampler_of(schedule, unet, seed=2)
    assert counts_of(sampler, picture, store=store, identity=other) == counts_of(sampler, picture)
    assert [file.read_bytes() for file in store.rglob("*.aside")] == [foreign], "it is kept, not destroyed"


def test_more_samples_draw_only_the_missing_ones(schedule, unet, picture, store):
    sampler = sampler_of(schedule, unet)
    counts_of(sampler, picture, n=30, store=store)
    before = sampler.pipeline.denoiser.evaluations
    assert counts_of(sampler, picture, n=60, store=store) == counts_of(sampler, picture, n=60)
    assert sampler.pipeline.denoiser.evaluations - before == (60 - 30) + 60
    fewer = tally_of(sampler, picture, n=20, store=store)
    assert fewer.counts.tolist() == counts_of(sampler, picture, n=20)
    assert fewer.evaluations == 20


@pytest.mark.parametrize(("method", "votes"), [("adds", 1), ("adds", 3), ("adds_oneshot", 1)])
def test_the_familys_ledger_holds_its_members(schedule, unet, picture, store, method, votes):
    """ADDS with 5 votes contains the others: they need no evaluation, count the same, and cost the same."""
    counts_of(sampler_of(schedule, unet, "adds", 5), picture, store=store)
    member = sampler_of(schedule, unet, method, votes)
    shared = tally_of(member, picture, store=store)
    assert member.pipeline.denoiser.evaluations == 0
    alone = tally_of(member, picture)
    assert shared.counts.tolist() == alone.counts.tolist()
    assert shared.evaluations == alone.evaluations
    more = counts_of(member, picture, n=N + 20, store=store)
    before = member.pipeline.denoiser.evaluations
    assert counts_of(member, picture, n=N + 20, store=store) == more
    assert member.pipeline.denoiser.evaluations == before, "it has a ledger of its own for what the leader's lacks"
    assert counts_of(member, picture, n=N + 20) == more


def test_chunks_that_overlap_count_nothing_twice(schedule, unet, picture, store, tmp_path):
    sampler = sampler_of(schedule, unet)
    counts_of(sampler, picture, n=25, store=store)
    shifted = sampler_of(schedule, unet, chunk_size=20)
    counts_of(shifted, picture, store=tmp_path / "other")
    path = only_file(store)
    path.write_bytes(path.read_bytes() + b"".join(lines_of(tmp_path / "other")[1:]))
    assert len(lines_of(store)) == 1 + 3
    before = sampler.pipeline.denoiser.evaluations
    found = counts_of(sampler, picture, store=store)
    assert sampler.pipeline.denoiser.evaluations == before
    assert found == counts_of(sampler, picture)


def test_a_gap_in_the_ledger_is_drawn_again(schedule, unet, picture, store):
    sampler = sampler_of(schedule, unet, chunk_size=15)
    counts_of(sampler, picture, store=store)
    lines = lines_of(store)
    only_file(store).write_bytes(b"".join(lines[:1] + lines[2:]))
    before = sampler.pipeline.denoiser.evaluations
    found = counts_of(sampler, picture, store=store)
    assert sampler.pipeline.denoiser.evaluations - before == 15, "and nothing but the gap"
    assert found == counts_of(sampler, picture)


def test_a_rule_is_asked_at_the_same_counts_whatever_is_on_record(schedule, unet, picture, store):
    """Otherwise an interruption, or another job's samples, could change where sequential sampling stops."""
    looks = []
    counts_of(sampler_of(schedule, unet, "rs", chunk_size=15), picture, n=35, store=store)
    sampler = sampler_of(schedule, unet, "rs", chunk_size=10)
    counts_of(sampler, picture, n=55, store=store, rule=lambda counts: looks.append(counts.tolist()))
    assert looks == [counts_of(sampler, picture, n=n) for n in (10, 20, 30, 40, 50, 55)]


def test_stages_are_independent(schedule, unet, picture):
    """Selection and estimation must not share random numbers: their predictions may agree only by chance."""
    sampler = sampler_of(schedule, unet, "rs", chunk_size=2000)
    one, other = (
        sampler.draw([Request(picture, stage, 0, 2000)])[0].ballots[:, 0] for stage in ("selection", "estimation")
    )
    shares = np.bincount(one, minlength=10) / 2000, np.bincount(other, minlength=10) / 2000
    by_chance = float((shares[0] * shares[1]).sum())
    assert abs((one == other).mean() - by_chance) < 5 * np.sqrt(by_chance * (1 - by_chance) / 2000)


def test_memory_does_not_grow_with_n(schedule, unet, picture):
    """What is kept of 100 chunks is one vector of counts."""
    tally = tally_of(sampler_of(schedule, unet, "rs", chunk_size=10), picture, n=1000)
    assert tally.samples == 1000
    assert tally.counts.nbytes == 80


def test_ledger_is_on_disk_before_progress_is_reported(schedule, unet, picture, store):
    sizes = []
    sampler = sampler_of(schedule, unet, "rs", chunk_size=10)
    counts_of(sampler, picture, store=store, progress=lambda _: sizes.append(only_file(store).stat().st_size))
    assert len(sizes) == 4
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "magic"}, "'magic' doesn't exist: choose one of rs, carlini"),
        ({"method": "rs", "votes": 5}, "votes is 5: rs has no votes"),
        ({"chunk_size": 0}, "chunk_size is 0"),
    ],
)
def test_bad_samplers(schedule, unet, changes, message):
    with pytest.raises(ValueError, match=message):
        sampler_of(schedule, unet, **changes)


def test_wrong_image_size_is_named(schedule, unet):
    with pytest.raises((RuntimeError, ValueError)):
        counts_of(sampler_of(schedule, unet), Picture.of(torch.zeros(3, 8, 8)))


def test_samples_of_another_image_are_never_counted(schedule, unet, image, picture, store):
    """Neither those of other pixels under the same number, nor those of the same pixels under another number."""
    sampler = sampler_of(schedule, unet)
    alike = [Picture.of(1 - image, number=3), Picture.of(image, number=4)]
    for other in alike:
        counts_of(sampler, other, store=store, images=[picture, *alike])
    found = counts_of(sampler, picture, store=store, images=[picture, *alike])
    assert len(lines_of(store)) == 1 + 3 * 2, "one file holds all three"
    assert found == counts_of(sampler, picture)


@pytest.mark.parametrize("stop", [None, Stop([Certified("pair", 0.0)])])
def test_a_job_counts_both_stages_of_each_image(schedule, unet, store, stop):
    """One row per image, equal to what the sampler says for that image and stage, in fixed and sequential mode."""
    images = images_of(7, 3)
    sampler = sampler_of(schedule, unet, chunk_size=16)
    ledgers = FamilyLedgers(store, IDENTITY, list(images), Variant("carlini", 1))
    table = job(sampler, images, ledgers, SampleSize(n0=20, n=64, alpha=0.05, stop=stop))
    assert table["number"].tolist() == [7, 3]
    for row, picture in zip(table.itertuples(index=False), images, strict=True):
        for stage, n in (("selection", row.n0), ("estimation", row.n)):
            alone = sampler.count(picture, stage=stage, limit=n)
            assert getattr(row, f"counts_{stage}") == alone.counts.tolist()
    if stop is None:
        assert table["n"].eq(64).all()
        assert table["stopped"].eq("fixed").all()
    else:
        assert table["stopped"].isin(["answered", "futile", "ruled out", "cap"]).all()
