"""The paper's own networks, full size with random weights, through one certification job on the CPU.

Slow, so not part of `make test`: run it with `pytest -m slow tests/test_full_size.py`. It needs 10 GiB of memory,
4 GiB of disk, and 15 to 60 minutes on two cores: 12 samples, each one evaluation of the UNet and one of BEiT-L.
"""

import hashlib
import io
import os
import subprocess
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image

from adds.experiment import Experiment
from adds.models.classifiers.timm import TimmDescription, import_timm
from adds.models.weights import WEIGHTS, describe_model
from tests.conftest import random_unet
from tests.test_imagenet import LIST
from tests.workflow import PROJECT, SNAKEMAKE, copy_project, merged

CONFIG = yaml.safe_load((PROJECT / "config/config.yaml").read_text())
COUNTS = "results/imagenet/counts/carlini/sigma1.0/votes1/00000.parquet"


@pytest.mark.slow
def test_one_job_with_the_papers_networks(tmp_path):
    folder = copy_project(tmp_path)
    checkpoint = folder / "256x256_diffusion_uncond.pt"
    torch.save(random_unet(CONFIG["diffusion"]["unet"]).state_dict(), checkpoint)
    beit = import_timm().create_model(CONFIG["classifier"]["name"], pretrained=False)
    for row in LIST.itertuples():
        pixels = np.random.default_rng(row.number).integers(0, 255, (300, 400, 3), dtype=np.uint8)
        jpeg = io.BytesIO()
        Image.fromarray(pixels).save(jpeg, "JPEG")
        (folder / row.filename).write_bytes(jpeg.getvalue())
    with checkpoint.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    LIST.iloc[:1].to_csv(folder / "one.csv", index=False)  # so that networks are tested on no more
    changes = {
        "device": "cpu",
        "dataset": {"images": 1, "list": "one.csv", "source": "."},
        "diffusion": {
            "batch_size": 1,
            "most_error": None,
            "weights": checkpoint.name,
            "download": {"size": checkpoint.stat().st_size, "sha256": digest},
        },
        "classifier": {"batch_size": 1, "least_accuracy": None},
        "sampling": {"n0": 1, "n": 11, "chunk_size": 1},  # the fewest that alpha = 0.001 allows
    }
    classifier = folder / Experiment.from_config(merged(CONFIG, changes), folder).folder("classifier")
    classifier.mkdir(parents=True)
    torch.save(beit.state_dict(), classifier / WEIGHTS)
    describe_model(classifier, asdict(TimmDescription.of(beit)))
    (folder / "full.yaml").write_text(yaml.safe_dump(changes))
    command = [SNAKEMAKE, "--cores", "2", "--set-threads", "certify=2", "--resources", "mem_mb=20000"]
    done = subprocess.run(
        [*command, "--configfile", "full.yaml", "--", COUNTS],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts = pd.read_parquet(folder / COUNTS)
    assert len(counts) == 1
    row = counts.iloc[0]
    assert len(row["counts_estimation"]) == 1000
    assert sum(row["counts_estimation"]) == 11
    assert row["evaluations"] == 12
    print(f"{row['seconds'] / 12:.1f} s per sample; {done.stderr[-400:]}")
