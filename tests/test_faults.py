"""Jobs that die at any moment lose at most a chunk, and end with the counts they would have had."""

import io
import logging
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from tqdm import tqdm

from adds.data.images import Picture
from adds.diffusion.batching import Batches
from adds.machine.logs import stop_on_signals, telling_when_stopped
from adds.sampling import ledger
from adds.sampling.ledger import FamilyLedgers, Ledger
from adds.sampling.sampler import Sampler
from adds.sampling.stopping import SampleSize
from tests.conftest import random_unet, unet_pipeline
from tests.test_ledger import IDENTITY, LEADER, images_of, job, sampler_in_closed_form

context = multiprocessing.get_context("fork")
IMAGES = images_of(0, 1, 2)
SIZE = SampleSize(n0=16, n=40)


class Reporting(FamilyLedgers):
    """Tells through a pipe how many samples are on disk."""

    def __init__(self, store, pipe, patience):
        super().__init__(store, IDENTITY, list(IMAGES), LEADER, patience=patience)
        self.pipe = pipe

    def append(self, chunks):
        super().append(chunks)
        for chunk in chunks:
            self.pipe.send((chunk.image, chunk.stage, chunk.first_sample + len(chunk)))


def work(schedule, store, pipe, target, prepare, patience, at_once):
    """What a job's process does: count, then write the counts under a temporary name and rename them."""
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own lock is shared by forked processes, and may be held by a killed one
    if prepare:
        prepare()
    try:
        with telling_when_stopped():
            ledgers = Reporting(store, pipe, patience)
            counts = job(sampler_in_closed_form(schedule), IMAGES, ledgers, SIZE, at_once=at_once)
    except (OSError, RuntimeError) as error:
        pipe.send(str(error))
        os._exit(1)
    counts.to_pickle(target.with_suffix(".part"))
    target.with_suffix(".part").replace(target)


class Job:
    """A job whose processes are started one after the other, or at once."""

    def __init__(self, schedule, folder):
        self.schedule, self.store, self.target = schedule, folder / "ledger", folder / "counts.pickle"
        self.path = FamilyLedgers(self.store, IDENTITY, list(IMAGES), LEADER).path
        self.processes = []

    def start(self, prepare=None, *, target=None, patience=0.1, at_once=1):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (self.schedule, self.store, theirs, target or self.target, prepare, patience, at_once)
        process = context.Process(target=work, args=arguments)
        process.start()
        self.processes.append(process)
        theirs.close()
        return process, ours

    def run(self, prepare=None):
        """Let a process end; return everything that it said."""
        process, pipe = self.start(prepare)
        process.join()
        return process.exitcode, told(pipe)

    def on_disk(self):
        """What `Reporting` tells, of every chunk in the ledger: twice where one was drawn twice."""
        chunks = Ledger(self.path, IDENTITY, read_only=True).all_chunks()
        return sorted((chunk.image, chunk.stage, chunk.first_sample + len(chunk)) for chunk in chunks)

    def counts(self):
        return pd.read_pickle(self.target)


@pytest.fixture
def faulty(schedule, tmp_path):
    found = Job(schedule, tmp_path)
    yield found
    for process in found.processes:
        process.kill()  # a test that failed may have left one stopped


@pytest.fixture(scope="module")
def whole(schedule, tmp_path_factory):
    """The job without interruption."""
    found = Job(schedule, tmp_path_factory.mktemp("whole"))
    assert found.run()[0] == 0
    return found


@pytest.fixture
def uninterrupted(whole):
    return whole.counts()


def told(pipe):
    """Everything that the process said was on disk before it ended."""
    messages = []
    try:
        while pipe.poll():
            messages.append(pipe.recv())
    except EOFError:
        pass
    return messages


@pytest.mark.parametrize("at_once", [1, 24], ids=["one image", "all images at once"])
def test_kills_at_random_moments(faulty, uninterrupted, at_once):
    """SIGKILL until the job gets through, dozens of times: nothing that was on disk is lost or drawn twice."""
    rng, kills = random.Random(0), 0
    drawn = []
    while kills < 40:
        process, pipe = faulty.start(at_once=at_once)
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
        assert set(seen) <= set(faulty.on_disk())
        if faulty.target.exists():  # it got through: begin a new job
            pd.testing.assert_frame_equal(faulty.counts(), uninterrupted)
            faulty.target.unlink()
            faulty.path.unlink()
            drawn = []
    drawn += faulty.run()[1]
    pd.testing.assert_frame_equal(faulty.counts(), uninterrupted)
    assert len(drawn) == len(set(drawn)), "no chunk that was on disk has been drawn again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_jobs_that_are_stopped_say_how_far_they_were_and_go_on_from_there(faulty, tmp_path, uninterrupted, number):
    log = tmp_path / "job.log"

    def prepare():
        logging.basicConfig(filename=log, level=logging.INFO, force=True)
        stop_on_signals()

    process, pipe = faulty.start(prepare)
    pipe.recv()
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == 128 + number
    total = len(IMAGES) * (SIZE.n0 + SIZE.n)
    text = log.read_text()
    (samples,) = re.findall(rf"interrupted after (\d+) of {total} samples; the same command goes on from there", text)
    on_disk = sum(len(chunk) for chunk in Ledger(faulty.path, IDENTITY, read_only=True).all_chunks())
    assert 0 <= on_disk - int(samples) <= 8, "a chunk may be written that was not counted any more"
    assert "Traceback" not in text
    assert "going on" not in text
    faulty.run(prepare)
    assert f"going on from {on_disk} of {total} samples on record" in log.read_text()
    pd.testing.assert_frame_equal(faulty.counts(), uninterrupted)


@pytest.mark.parametrize("most", [100, 2000], ids=["in the header", "in a chunk"])
def test_a_full_disk_is_an_error_and_the_next_run_goes_on(faulty, uninterrupted, most):
    def prepare():
        sys.stderr = io.StringIO()  # pytest's is a file, which the limit would hold for too
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # a write ends in the middle

    exitcode, [*kept, error] = faulty.run(prepare)
    assert exitcode == 1
    assert "samples could not be written" in error
    assert str(faulty.path) in error
    assert bool(kept) == (most > 100)
    assert sorted(kept) == faulty.on_disk()
    assert faulty.path.stat().st_size == most, "the write that failed left a part of a record"
    again = faulty.run()[1]
    assert not set(kept) & set(again)
    pd.testing.assert_frame_equal(faulty.counts(), uninterrupted)


def half(path):
    content = path.read_bytes()
    return content[: len(content) // 2]


def of_another_seed(path):
    """Return the same chunks under an intact header of another identity."""
    other = Ledger(path.with_suffix(".other"), {**IDENTITY, "seed": 1})
    other.append(Ledger(path, IDENTITY, read_only=True).all_chunks())
    other.close()
    return other.path.read_bytes()


def not_a_ledger(_path):
    return b"not a ledger\n"


@pytest.mark.parametrize("damaged", [half, of_another_seed, not_a_ledger])
def test_a_truncated_and_a_foreign_ledger(faulty, whole, uninterrupted, damaged):
    content = damaged(whole.path)
    faulty.path.parent.mkdir(parents=True)
    faulty.path.write_bytes(content)
    faulty.run()
    pd.testing.assert_frame_equal(faulty.counts(), uninterrupted)
    assert faulty.on_disk() == whole.on_disk()
    aside = [file.read_bytes() for file in faulty.path.parent.glob("*.aside")]
    assert aside == ([] if damaged is half else [content]), "what isn't ours is kept"


def stopped(faulty):
    """Start a process of the job and stop it while it holds the ledger's lock."""
    process, pipe = faulty.start()
    message = pipe.recv()
    os.kill(process.pid, signal.SIGSTOP)
    return process, pipe, message


def test_a_second_process_on_one_job_gives_up(faulty, tmp_path, uninterrupted):
    first, _, _ = stopped(faulty)
    second, pipe = faulty.start(target=tmp_path / "other.pickle")
    second.join()
    assert second.exitcode == 1
    assert f"another process is drawing samples into {faulty.path}" in pipe.recv()
    os.kill(first.pid, signal.SIGCONT)
    first.join()
    pd.testing.assert_frame_equal(faulty.counts(), uninterrupted)


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_a_second_process_that_gets_the_lock_draws_only_what_the_first_left(
    faulty, whole, tmp_path, uninterrupted, monkeypatch, end
):
    waits = context.Event()

    def sleep(_):
        waits.set()
        time.sleep(0.02)

    monkeypatch.setattr(ledger, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    first, first_pipe, message = stopped(faulty)
    second, second_pipe = faulty.start(target=tmp_path / "other.pickle", patience=600)
    assert waits.wait(60)
    os.kill(first.pid, end)
    first.join()
    second.join()
    by_first, by_second = {message, *told(first_pipe)}, told(second_pipe)
    assert not by_first & set(by_second)
    assert bool(by_second) == (end == signal.SIGKILL)
    assert faulty.on_disk() == whole.on_disk(), "nothing is lost, and nothing was drawn twice"
    pd.testing.assert_frame_equal(pd.read_pickle(tmp_path / "other.pickle"), uninterrupted)
    assert faulty.target.exists() == (end == signal.SIGCONT)


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
        return sampler.count(Picture.of(image), stage="estimation", limit=64).counts.tolist()

    small = SmallMemory(random_unet(), most=20)
    assert counts(small, 64) == counts(random_unet(), 16)
    assert small.sizes[:4] == [64, 32, 16, 16]
    assert set(small.sizes[2:]) == {16}, "the size that fits is kept"
    assert "going on with batches of 16" in caplog.text
    with pytest.raises(torch.OutOfMemoryError):
        counts(SmallMemory(random_unet(), most=0), 4)


NO_ENGINE = "GET was unable to find an engine to execute this computation"


def hold(monkeypatch, *, free: float) -> None:
    """Let so many of a GPU's 16 gigabytes be free: half of them told by the driver, half held by torch unused."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free / 2, 16.0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 5.0 + free / 2)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 5.0)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA driver error: out of memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("HIP error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
        RuntimeError(NO_ENGINE),
    ],
    ids=str,
)
def test_no_rows_are_lost_when_batches_shrink(error, monkeypatch):
    hold(monkeypatch, free=1.0)
    rows = torch.arange(100.0)
    batches = Batches(64)

    def double(batch):
        if len(batch) > 10:
            raise error
        return 2 * batch

    assert torch.equal(batches.apply(double, rows), 2 * rows)
    assert batches.size == 8


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: an illegal memory access was encountered",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`",
        "the host is out of memory",
        NO_ENGINE,
        "mat1 and mat2 shapes",
    ],
)
def test_no_other_failure_makes_batches_smaller(message, monkeypatch):
    """Nor does a convolution that cuDNN can't compute, while memory is free."""
    hold(monkeypatch, free=8.0)

    def fail(_):
        raise RuntimeError(message)

    batches = Batches(64)
    with pytest.raises(RuntimeError, match=message):
        batches.apply(fail, torch.arange(100.0))
    assert batches.size == 64
