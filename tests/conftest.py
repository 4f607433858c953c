"""Small worlds that the tests share."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import settings
from torch import Tensor, nn

from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.machine import gpus
from adds.models.pipeline import BatchedClassifier, Pipeline
from adds.models.unet import build_unet, randomize
from adds.registry import READERS
from tests.own_data import certify_own_data
from tests.workflow import copy_project, run

torch.set_num_threads(1)
# Machines are shared: no test may depend on its speed. What is handed in is judged on the same examples each time;
# everybody else's run tries others.
settings.register_profile("here", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("here")


@pytest.fixture
def own_slots(tmp_path, monkeypatch):
    """One GPU is to be seen, and slots on it are this test's own: others on the machine aren't waited for."""
    monkeypatch.setenv(gpus.VISIBLE, "0")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(gpus, "_held", [])


TINY_UNET = {
    "image_size": 8,
    "in_channels": 1,
    "num_channels": 32,
    "num_res_blocks": 0,
    "channel_mult": [1, 1],
    "attention_resolutions": [],
    "num_head_channels": 32,
    "use_scale_shift_norm": True,
    "resblock_updown": False,
}


class GaussianWorld:
    """Data N(0, tau^2 I) in the model's units: the optimal noise predictor is linear in x_t.

    eps(x_t, t) = sqrt(1 - abar_t) / (abar_t tau^2 + 1 - abar_t) x_t. ``variance`` says where between its two ends the
    variance is, halfway at 0; it may differ by coordinate.
    """

    def __init__(self, schedule: Schedule, tau: float, variance: float | Tensor = 0.0) -> None:
        abar = torch.tensor(schedule.alphas_bar)
        self.slope = torch.sqrt(1 - abar) / (abar * tau**2 + 1 - abar)
        self.variance = variance

    def __call__(self, x_t: Tensor, timesteps: Tensor) -> Tensor:
        eps = self.slope[timesteps.long()].view(-1, 1, 1, 1).to(x_t.dtype) * x_t
        return torch.cat([eps, torch.zeros_like(eps) + self.variance], dim=1)


def sign_of_first_coordinate(images: Tensor) -> Tensor:
    """Class 1 where the first coordinate is positive in [-1, 1], class 0 elsewhere."""
    first = images.flatten(1)[:, 0]
    return torch.stack([-first, first], dim=1)


@pytest.fixture(scope="session")
def schedule() -> Schedule:
    return Schedule.named("linear", 1000)


@pytest.fixture
def gaussian_pipeline(schedule: Schedule) -> Pipeline:
    denoiser = Denoiser(GaussianWorld(schedule, tau=0.3), schedule, batch_size=64)
    classifier = BatchedClassifier(sign_of_first_coordinate, classes=2, batch_size=64)
    return Pipeline(denoiser, classifier, schedule.respaced(evenly_spaced(20, 1000)))


def random_unet(settings: Mapping[str, Any] = TINY_UNET) -> nn.Module:
    """Return a UNet as guided_diffusion has it, with random weights."""
    network = build_unet(settings)
    randomize(network)
    return network.eval().requires_grad_(False)


def random_classifier(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).requires_grad_(False)


@pytest.fixture(scope="session")
def unet() -> nn.Module:
    return random_unet()


def unet_pipeline(schedule: Schedule, network: nn.Module, batch_size: int = 64) -> Pipeline:
    classifiers = [BatchedClassifier(random_classifier(seed), classes=10, batch_size=batch_size) for seed in range(5)]
    return Pipeline(
        Denoiser(network, schedule, batch_size=batch_size),
        classifiers[0],
        schedule.respaced(evenly_spaced(20, 1000)),
        dict(zip(READERS, classifiers[1:], strict=True)),
    )


@pytest.fixture
def image() -> Tensor:
    return torch.tensor(np.random.default_rng(0).uniform(size=(1, 8, 8)), dtype=torch.float32)


def once_for_all_workers(tmp_path_factory, name: str, build: Callable[[Path], None]) -> Path:
    """Return a folder that ``build`` has filled, by whichever worker came first."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / name
    with FileLock(shared / f"{name}.lock"):
        if not folder.exists():
            building = shared / f"{name}.building"
            build(building)
            building.rename(folder)
    return folder


def run_the_tiny_experiment(folder: Path) -> None:
    copy_project(folder)
    done = run(folder, "--logger", "adds")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "terminal.txt").write_text(done.stdout + done.stderr)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """Return a folder in which the tiny experiment has run whole, to its report."""
    return once_for_all_workers(tmp_path_factory, "finished", run_the_tiny_experiment)


@pytest.fixture(scope="session")
def own_data(tmp_path_factory) -> Path:
    """Return a folder in which a user's own images, classifier and diffusion model were certified, compiled."""
    return once_for_all_workers(tmp_path_factory, "own_data", certify_own_data)


@pytest.fixture
def rerun(finished, tmp_path) -> Path:
    """Return a copy of the finished run that a test may change."""
    return shutil.copytree(finished, tmp_path / "run", symlinks=True)
