"""Jobs that die at any moment lose at most a chunk, and end with the counts they would have had."""

import logging
import multiprocessing
import os
import random
import resource
import signal
import threading
import time

import pandas as pd
import pytest
import torch
from tqdm import tqdm

from adds.data.digits import prepare_digits
from adds.diffusion.batching import Batches
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import evenly_spaced
from adds.machine.logs import exit_when_terminated
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.sampling.job import count_shard
from adds.sampling.ledger import Ledger
from adds.sampling.sampler import Sampler
from adds.sampling.stopping import SampleSize
from tests.conftest import GaussianWorld, random_unet, sign_of_first_coordinate, unet_pipeline

context = multiprocessing.get_context("fork")
IDENTITY = {"method": "adds", "seed": 0}
CHUNK = 8


class Reporting(Ledger):
    """Tells through a pipe how many samples are on disk."""

    def __init__(self, path, pipe):
        super().__init__(path, IDENTITY, patience=0.1)
        self.pipe = pipe

    def append(self, chunk):
        super().append(chunk)
        self.pipe.send((chunk.image, chunk.stage, chunk.first_sample + len(chunk)))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return prepare_digits(tmp_path_factory.mktemp("digits")).head(3).assign(label=0)


def job(schedule, images, ledger) -> pd.DataFrame:
    torch.set_num_threads(1)
    pipeline = Pipeline(
        Denoiser(GaussianWorld(schedule, tau=0.3), schedule, batch_size=16),
        BatchedClassifier(sign_of_first_coordinate, classes=2, batch_size=16),
        schedule.respaced(evenly_spaced(20, 1000)),
    )
    sampler = Sampler("adds", pipeline, sigma=0.6, votes=2, chunk_size=CHUNK, keep_oneshot=True)
    size = SampleSize(n0=16, n=40)
    counts = count_shard(
        sampler.counter,
        images,
        image_size=8,
        size=size,
        ledger=ledger,
        family=[],
        identity=IDENTITY,
        device="cpu",
    )
    return counts.drop(columns=["seconds"])


def work(schedule, images, path, pipe, target, prepare=None):
    """What a job's process does: count, then write the counts under a temporary name and rename them."""
    tqdm.set_lock(threading.RLock())  # its own lock is shared by forked processes, and may be held by a killed one
    if prepare:
        prepare()
    try:
        counts = job(schedule, images, Reporting(path, pipe))
    except (OSError, RuntimeError) as error:
        pipe.send(str(error))
        os._exit(1)
    counts.to_pickle(target.with_suffix(".part"))
    target.with_suffix(".part").replace(target)


@pytest.fixture
def uninterrupted(schedule, images, tmp_path):
    ledger = Ledger(tmp_path / "whole.jsonl", IDENTITY)
    counts = job(schedule, images, ledger)
    ledger.close()
    return counts


def start(schedule, images, path, target, prepare=None):
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(schedule, images, path, theirs, target, prepare))
    process.start()
    theirs.close()
    return process, ours


def told(pipe):
    """Everything that the process said was on disk before it ended."""
    messages = []
    try:
        while pipe.poll():
            messages.append(pipe.recv())
    except EOFError:
        pass
    return messages


def on_disk(path):
    ledger = Ledger(path, IDENTITY, read_only=True)
    return {
        (chunk.image, chunk.stage, chunk.first_sample + len(chunk))
        for chunks in ledger._chunks.values()
        for chunk in chunks
    }


def test_kills_at_random_moments(schedule, images, tmp_path, uninterrupted):
    """SIGKILL until the job gets through, dozens of times: nothing that was on disk is lost or drawn twice."""
    rng, kills = random.Random(0), 0
    path, target = tmp_path / "shard.jsonl", tmp_path / "counts.pickle"
    drawn = []
    while kills < 40:
        process, pipe = start(schedule, images, path, target)
        stop_after = rng.choice([0, 0, 1, 1, 2])  # messages, and then a random part of the next chunk
        seen = []
        try:
            while len(seen) < stop_after:
                seen.append(pipe.recv())
            time.sleep(rng.random() * 0.03)
        except EOFError:
            pass
        process.kill()
        process.join()
        kills += 1
        seen += told(pipe)
        drawn += seen
        if path.exists() and path.stat().st_size:
            assert set(seen) <= on_disk(path)
        if target.exists():  # it got through: begin a new job
            pd.testing.assert_frame_equal(pd.read_pickle(target), uninterrupted)
            target.unlink()
            path.unlink()
            drawn = []
    process, pipe = start(schedule, images, path, target)
    process.join()
    drawn += told(pipe)
    pd.testing.assert_frame_equal(pd.read_pickle(target), uninterrupted)
    assert len(drawn) == len(set(drawn)), "no chunk that was on disk has been drawn again"


def test_terminated_jobs_say_so_and_exit_at_once(schedule, images, tmp_path, uninterrupted):
    path, target, log = tmp_path / "shard.jsonl", tmp_path / "counts.pickle", tmp_path / "job.log"

    def prepare():
        logging.basicConfig(filename=log, level=logging.INFO, force=True)
        exit_when_terminated("samples are on disk")

    process, pipe = start(schedule, images, path, target, prepare)
    pipe.recv()
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 128 + signal.SIGTERM
    assert "terminated: samples are on disk" in log.read_text()
    process, _ = start(schedule, images, path, target)
    process.join()
    pd.testing.assert_frame_equal(pd.read_pickle(target), uninterrupted)


def test_a_full_disk_is_an_error_and_the_next_run_goes_on(schedule, images, tmp_path, uninterrupted):
    path, target = tmp_path / "shard.jsonl", tmp_path / "counts.pickle"

    def prepare():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # the third write or so ends in the middle

    process, pipe = start(schedule, images, path, target, prepare)
    process.join()
    assert process.exitcode == 1
    *kept, error = told(pipe)
    assert "samples could not be written" in error
    assert str(path) in error
    assert kept
    assert set(kept) == on_disk(path)
    assert path.stat().st_size == 1000, "the write that failed left a part of a record"
    process, _ = start(schedule, images, path, target)
    process.join()
    pd.testing.assert_frame_equal(pd.read_pickle(target), uninterrupted)


def test_a_truncated_and_a_foreign_ledger(schedule, images, tmp_path, uninterrupted):
    whole = (tmp_path / "whole.jsonl").read_bytes()
    path, target = tmp_path / "shard.jsonl", tmp_path / "counts.pickle"
    for content in (whole[: len(whole) // 2], whole.replace(b'"seed":0', b'"seed":1'), b"not a ledger\n"):
        path.write_bytes(content)
        process, _ = start(schedule, images, path, target)
        process.join()
        pd.testing.assert_frame_equal(pd.read_pickle(target), uninterrupted)
        target.unlink()
    assert len(list(tmp_path.glob("*.aside"))) == 2


def test_two_processes_on_one_job(schedule, images, tmp_path, uninterrupted):
    path, target = tmp_path / "shard.jsonl", tmp_path / "counts.pickle"
    first, pipe = start(schedule, images, path, target)
    pipe.recv()
    os.kill(first.pid, signal.SIGSTOP)
    second, other_pipe = start(schedule, images, path, tmp_path / "other.pickle")
    second.join()
    assert second.exitcode == 1
    assert "another process is drawing samples into" in other_pipe.recv()
    os.kill(first.pid, signal.SIGCONT)
    first.join()
    pd.testing.assert_frame_equal(pd.read_pickle(target), uninterrupted)


class SmallMemory:
    """A network on a device that holds at most so many rows."""

    def __init__(self, network, most):
        self.network, self.most, self.sizes = network, most, []

    def __call__(self, x_t, timesteps):
        self.sizes.append(len(x_t))
        if len(x_t) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.network(x_t, timesteps)


def test_batches_shrink_until_they_fit(schedule, image, caplog):
    def counts(network, batch_size):
        pipeline = unet_pipeline(schedule, network, batch_size)
        sampler = Sampler("adds", pipeline, sigma=0.6, votes=2, chunk_size=64)
        return sampler.count(image, index=0, stage="estimation", limit=64).counts.tolist()

    small = SmallMemory(random_unet(), most=20)
    assert counts(small, 64) == counts(random_unet(), 16)
    assert small.sizes[:4] == [64, 32, 16, 16]
    assert set(small.sizes[2:]) == {16}, "the size that fits is kept"
    assert "going on with batches of 16" in caplog.text
    with pytest.raises(torch.OutOfMemoryError):
        counts(SmallMemory(random_unet(), most=0), 4)


def test_no_rows_are_lost_when_batches_shrink():
    rows = torch.arange(100.0)
    batches = Batches(64)

    def double(batch):
        if len(batch) > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 2 * batch

    assert torch.equal(batches.apply(double, rows), 2 * rows)
    assert batches.size == 8
