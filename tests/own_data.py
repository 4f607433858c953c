"""A user's own images, classifier and diffusion model through the workflow, as docs/doors.md says."""

import sys
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from adds.models.unet import build_unet, randomize
from adds.models.weights import save_weights
from tests.workflow import SNAKEMAKE, copy_project, run_in

UNET = {
    "image_size": 32,
    "in_channels": 1,
    "num_channels": 32,
    "num_res_blocks": 0,
    "channel_mult": [1, 1],
    "attention_resolutions": [16],
    "num_head_channels": 8,
    "use_scale_shift_norm": True,
    "resblock_updown": False,
}

CLASSIFIER = """
import torch
from torch import nn

RANGE = (0, 1)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, 2))
"""

CONFIG = {
    "experiment": "mine",
    "device": "cpu",
    "dataset": {"name": "files", "images": None, "list": "mine.csv", "classes": None, "source": "pictures"},
    "diffusion": {
        "weights": "mine.safetensors",
        "download": None,
        "compile": True,
        "batch_size": 8,
        "unet": UNET,
        "most_error": None,
    },
    "classifier": {"kind": "python", "file": "mine.py", "classes": 2, "batch_size": 8, "least_accuracy": None},
    "sigmas": [0.5],
    "guidance_scale": {"0.5": 0.8},
    "methods": {"densepure": None, "adds": {"votes": [1]}, "adds_oneshot": None},
    "sampling": {"n0": 4, "n": 12, "alpha": 0.05, "chunk_size": 8},
    "images_per_job": 6,
    "paper_tables": None,
    "figures": {"denoised_images": 2, "budget_trajectories": 4, "dpi": 60, "votes": [1]},
}


def certify_own_data(folder: Path) -> None:
    """Make a folder of images with a folder for each class, list it, and certify it."""
    copy_project(folder)
    rng = np.random.default_rng(0)
    for kind, grey in (("dark", 40), ("light", 160)):
        (folder / "pictures" / kind).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(grey, grey + 80, (40, 50), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"pictures/{kind}/{number}.png")
    (folder / "mine.py").write_text(CLASSIFIER)
    network = build_unet(UNET)
    randomize(network)
    save_weights(network, folder / "mine.safetensors")
    listed = run_in(folder, sys.executable, "-m", "adds.data.files", "pictures")
    (folder / "mine.csv").write_text(listed.stdout)
    done = run_mine(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "terminal.txt").write_text(done.stdout + done.stderr)


def run_mine(folder: Path, *arguments: str, **changes):
    (folder / "mine.yaml").write_text(yaml.safe_dump({**CONFIG, **changes}))
    return run_in(folder, SNAKEMAKE, "--cores", "2", *arguments, "--configfile", "mine.yaml")
