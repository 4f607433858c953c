"""Soundness 6, reproducibility: counts depend on neither batches, chunks nor interruptions."""

import numpy as np
import pandas as pd
import pytest
import torch

from adds.data.images import load_image
from adds.sampling.job import count_shard
from adds.sampling.ledger import Ledger
from adds.sampling.sampler import Sampler
from adds.sampling.stopping import SampleSize, Stop
from adds.sampling.votes import Tally
from tests.conftest import unet_pipeline

SETTINGS = [
    ("rs", 1),
    ("carlini", 1),
    ("densepure", 5),
    ("adds", 1),
    ("adds", 5),
    ("adds_oneshot", 1),
]
N = 60


def sampler_of(schedule, unet, method="carlini", votes=1, batch_size=64, **changes):
    pipeline = unet_pipeline(schedule, unet, batch_size=batch_size)
    return Sampler(method, pipeline, sigma=0.7, votes=votes, **{"chunk_size": 40, **changes})


def counts_of(sampler, image, n=N, **ledger):
    return sampler.count(image, index=3, stage="estimation", limit=n, **ledger).counts.tolist()


@pytest.mark.parametrize(("method", "votes"), SETTINGS)
def test_same_counts_for_every_batch_and_chunk_size(schedule, unet, image, method, votes):
    expected = counts_of(sampler_of(schedule, unet, method, votes), image)
    assert sum(expected) == N
    assert max(expected) < N, "the test needs a classifier that is not always of one mind"
    for batch_size, chunk_size in ((1, 40), (7, 40), (64, 60), (7, 13)):
        sampler = sampler_of(schedule, unet, method, votes, batch_size, chunk_size=chunk_size)
        assert counts_of(sampler, image) == expected


class KilledError(Exception):
    pass


@pytest.mark.parametrize("chunks_before_the_kill", [0, 1])
@pytest.mark.parametrize(("method", "votes"), [("adds", 5), ("densepure", 5)])
def test_interrupted_runs_end_with_the_same_counts(
    schedule, unet, image, tmp_path, method, votes, chunks_before_the_kill
):
    sampler = sampler_of(schedule, unet, method, votes)
    expected = counts_of(sampler, image)
    drawn = []

    def die(count):
        if len(drawn) == chunks_before_the_kill:
            raise KilledError
        drawn.append(count)

    path = tmp_path / "shard.jsonl"
    killed = Ledger(path, {"run": 1})
    with pytest.raises(KilledError):
        counts_of(sampler, image, ledger=killed, progress=die)
    killed.close()
    before = sampler.pipeline.denoiser.evaluations
    tally = sampler.count(image, index=3, stage="estimation", limit=N, ledger=Ledger(path, {"run": 1}))
    assert tally.counts.tolist() == expected
    assert sampler.pipeline.denoiser.evaluations - before < tally.evaluations, "recorded chunks are not redrawn"
    assert tally.evaluations == sampler.count(image, index=3, stage="estimation", limit=N).evaluations


def test_every_possible_cut_of_the_file_is_survived(schedule, unet, image, tmp_path):
    sampler = sampler_of(schedule, unet, chunk_size=30)
    path = tmp_path / "shard.jsonl"
    expected = counts_of(sampler, image, ledger=Ledger(path, {}))
    whole = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert counts_of(sampler, image, ledger=Ledger(path, {})) == expected
        assert len(path.read_bytes().splitlines()) == 3


def test_damage_in_the_middle_is_noticed(schedule, unet, image, tmp_path):
    sampler = sampler_of(schedule, unet, chunk_size=30)
    path = tmp_path / "shard.jsonl"
    expected = counts_of(sampler, image, ledger=Ledger(path, {}))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    assert counts_of(sampler, image, ledger=Ledger(path, {})) == expected


def test_a_ledger_of_other_parameters_is_not_used(schedule, unet, image, tmp_path):
    path = tmp_path / "shard.jsonl"
    counts_of(sampler_of(schedule, unet, seed=1), image, ledger=Ledger(path, {"seed": 1}))
    sampler = sampler_of(schedule, unet, seed=2)
    foreign = path.read_bytes()
    assert counts_of(sampler, image, ledger=Ledger(path, {"seed": 2})) == counts_of(sampler, image)
    assert [file.read_bytes() for file in tmp_path.glob("*.aside")] == [foreign], "it is kept, not destroyed"


def test_more_samples_draw_only_the_missing_ones(schedule, unet, image, tmp_path):
    sampler = sampler_of(schedule, unet)
    path = tmp_path / "shard.jsonl"
    counts_of(sampler, image, n=50, ledger=Ledger(path, {}))
    before = sampler.pipeline.denoiser.evaluations
    assert counts_of(sampler, image, n=90, ledger=Ledger(path, {})) == counts_of(sampler, image, n=90)
    assert sampler.pipeline.denoiser.evaluations - before == (90 - 50) + 90
    fewer = sampler.count(image, index=3, stage="estimation", limit=20, ledger=Ledger(path, {}))
    assert fewer.counts.tolist() == counts_of(sampler, image, n=20)
    assert fewer.evaluations == 20


@pytest.mark.parametrize(("method", "votes"), [("adds", 1), ("adds", 3), ("adds_oneshot", 1)])
def test_the_familys_ledger_holds_its_members(schedule, unet, image, tmp_path, method, votes):
    """ADDS with 5 votes contains the others: they need no evaluation, count the same, and cost the same."""
    path = tmp_path / "family.jsonl"
    leader = sampler_of(schedule, unet, "adds", 5, keep_oneshot=True)
    counts_of(leader, image, ledger=Ledger(path, {}))
    member = sampler_of(schedule, unet, method, votes)
    family = [Ledger(path, {}, read_only=True)]
    shared = member.count(image, index=3, stage="estimation", limit=N, family=family)
    assert member.pipeline.denoiser.evaluations == 0
    alone = member.count(image, index=3, stage="estimation", limit=N)
    assert shared.counts.tolist() == alone.counts.tolist()
    assert shared.evaluations == alone.evaluations
    own = Ledger(tmp_path / "own.jsonl", {})
    more = member.count(image, index=3, stage="estimation", limit=N + 30, family=family, ledger=own)
    own.close()
    assert more.counts.tolist() == counts_of(member, image, n=N + 30)
    again = member.count(
        image,
        index=3,
        stage="estimation",
        limit=N + 30,
        family=family,
        ledger=Ledger(tmp_path / "own.jsonl", {}),
    )
    assert again.counts.tolist() == more.counts.tolist()


def test_chunks_that_overlap_count_nothing_twice(schedule, unet, image, tmp_path):
    path = tmp_path / "shard.jsonl"
    sampler = sampler_of(schedule, unet)
    empty = path.read_bytes() if path.exists() else b""
    parts = []
    for n in (40, 60):
        path.write_bytes(empty)
        ledger = Ledger(path, {})
        counts_of(sampler, image, n=n, ledger=ledger)
        ledger.close()
        parts += path.read_bytes().splitlines(keepends=True)[1 if parts else 0 :]
    path.write_bytes(b"".join(parts))
    assert len(Ledger(path, {}, read_only=True).chunks(3, "estimation")) == 3
    assert counts_of(sampler, image, ledger=Ledger(path, {})) == counts_of(sampler, image)


def test_a_gap_in_the_ledger_is_drawn_again(schedule, unet, image, tmp_path):
    path = tmp_path / "shard.jsonl"
    sampler = sampler_of(schedule, unet, chunk_size=20)
    counts_of(sampler, image, ledger=Ledger(path, {}))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert counts_of(sampler, image, ledger=Ledger(path, {})) == counts_of(sampler, image)


def test_stages_are_independent(schedule, unet, image):
    """Selection and estimation must not share random numbers: their predictions may agree only by chance."""
    sampler = sampler_of(schedule, unet, "rs", chunk_size=2000)
    one, other = (
        sampler.draw(image, index=0, stage=stage, first=0, count=2000).ballots[:, 0]
        for stage in ("selection", "estimation")
    )
    shares = np.bincount(one, minlength=10) / 2000, np.bincount(other, minlength=10) / 2000
    by_chance = float((shares[0] * shares[1]).sum())
    assert abs((one == other).mean() - by_chance) < 5 * np.sqrt(by_chance * (1 - by_chance) / 2000)


def test_memory_does_not_grow_with_n(schedule, unet, image):
    """What is kept of 100 chunks is one vector of counts."""
    tally = sampler_of(schedule, unet, "rs", chunk_size=10).count(image, index=0, stage="estimation", limit=1000)
    assert isinstance(tally, Tally)
    assert tally.drawn == 1000
    assert tally.counts.nbytes == 80


def test_ledger_is_on_disk_before_progress_is_reported(schedule, unet, image, tmp_path):
    path = tmp_path / "shard.jsonl"
    sizes = []
    sampler = sampler_of(schedule, unet, "rs", chunk_size=30)
    counts_of(
        sampler,
        image,
        ledger=Ledger(path, {}),
        progress=lambda _: sizes.append(path.stat().st_size),
    )
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
        counts_of(sampler_of(schedule, unet), torch.zeros(3, 8, 8))


def test_samples_of_another_image_are_never_counted(schedule, unet, image, tmp_path):
    path = tmp_path / "shard.jsonl"
    sampler = sampler_of(schedule, unet)
    counts_of(sampler, 1 - image, ledger=Ledger(path, {}))
    assert counts_of(sampler, image, ledger=Ledger(path, {})) == counts_of(sampler, image)


def test_a_shard_counts_both_stages_of_each_image(schedule, unet, image, tmp_path):
    """One row per image, equal to what the sampler says for that image and stage, in fixed and sequential mode."""
    files = []
    for number in range(2):
        files.append(tmp_path / f"{number}.npy")
        np.save(files[-1], (image if number else 1 - image).numpy())
    images = pd.DataFrame({"index": [7, 3], "file": files, "label": [0, 1], "class_name": ["a", "b"]})
    sampler = sampler_of(schedule, unet, chunk_size=16)
    for stop in (None, Stop(rule="radii", radii=[0.0], bound="two_sided")):
        size = SampleSize(n0=20, n=64, alpha=0.05, stop=stop)
        ledger = Ledger(tmp_path / f"{stop}.jsonl".replace("/", ""), {})
        table = count_shard(
            sampler.counter,
            images,
            image_size=8,
            size=size,
            ledger=ledger,
            family=[],
            identity={"run": 1},
            device="cpu",
        )
        for row in table.itertuples(index=False):
            pixels = load_image(files[0 if row.index == 7 else 1], size=8)
            for stage, n in (("selection", row.n0), ("estimation", row.n)):
                alone = sampler.count(pixels, index=row.index, stage=stage, limit=n)
                assert getattr(row, f"counts_{stage}") == alone.counts.tolist()
        if stop is None:
            assert table["n"].eq(64).all()
            assert table["stopped"].eq("fixed").all()
        else:
            assert table["stopped"].isin(["decided", "futile", "budget"]).all()
