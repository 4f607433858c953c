"""The paper's configuration from nothing to tables, with small stand-ins under the true names."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save

from adds.models.classifiers.timm import import_timm
from adds.models.unet import build_unet
from tests.test_cifar10 import cifar_archive
from tests.test_imagenet import LIST, archive
from tests.workflow import SNAKEMAKE, copy_project

CLASSIFIER = "resnet10t.c3_in1k"
UNET = {
    "image_size": 32,
    "in_channels": 3,
    "num_channels": 32,
    "num_res_blocks": 1,
    "channel_mult": [1, 1],
    "attention_resolutions": [16],
    "num_head_channels": 32,
    "use_scale_shift_norm": True,
    "resblock_updown": True,
}
IMPROVED = {"num_head_channels": -1, "num_heads": 4, "resblock_updown": False}
COMMIT = "0123456789abcdef0123456789abcdef01234567"

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("paper")]


class Handler(BaseHTTPRequestHandler):
    """Serves files with ranges, and looks enough like the model hub for its client."""

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        self.server.asked.append(self.path)
        if self.path.startswith("/account/"):
            self.send_error(403)
            return
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range", "")
        first = int(asked.removeprefix("bytes=").split("-")[0]) if asked.startswith("bytes=") else 0
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if body:
            self.wfile.write(content[first:])

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    torch.manual_seed(0)
    buffer = io.BytesIO()
    torch.save(build_unet(UNET).state_dict(), buffer)
    improved = io.BytesIO()
    torch.save(build_unet({**UNET, **IMPROVED}).state_dict(), improved)
    network = import_timm().create_model(CLASSIFIER, pretrained=False)

    def photograph(seed):
        pixels = np.random.default_rng(seed).integers(0, 255, (40, 50, 3), dtype=np.uint8)
        jpeg = io.BytesIO()
        Image.fromarray(pixels).save(jpeg, "JPEG")
        return jpeg.getvalue()

    tar = archive(folder / "val.tar", sorted(LIST["filename"]), contents=photograph).read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub = "grodino/resnet18_cifar10/resolve/a008765d39573f1e656658b53fa30c38d3a520cb"
        own = import_timm().create_model("resnet10t", pretrained=False, num_classes=10)
        described_on_hub = {"architecture": "resnet10t", "num_classes": 10, "pretrained_cfg": own.pretrained_cfg}
        cifar_archive(folder / "cifar.tar.gz")
        server.files = {
            "/improved_diffusion.pt": improved.getvalue(),
            "/cifar-10-binary.tar.gz": (folder / "cifar.tar.gz").read_bytes(),
            f"/{hub}/config.json": json.dumps(described_on_hub).encode(),
            f"/{hub}/model.safetensors": save(own.state_dict()),
            "/256x256_diffusion_uncond.pt": buffer.getvalue(),
            "/ILSVRC2012_img_val.tar": tar,
            f"/timm/{CLASSIFIER}/resolve/main/model.safetensors": save(network.state_dict()),
        }
        server.asked = []
        server.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def described(server, path, algorithm):
    content = server.files[path]
    digest = hashlib.new(algorithm, content).hexdigest()
    return {"urls": [server.address + path], "size": len(content), algorithm: digest}


def run(folder, server, *arguments, configfiles=(), hub=None, environment=(), **changes):
    config = {
        "device": "cpu",
        "dataset": {"images": 2, "download": described(server, "/ILSVRC2012_img_val.tar", "md5")},
        "diffusion": {
            "batch_size": 4,
            "unet": UNET,
            "most_error": None,  # the stand-ins have learned nothing
            "download": described(server, "/256x256_diffusion_uncond.pt", "sha256"),
        },
        "classifier": {"name": CLASSIFIER, "batch_size": 4, "least_accuracy": None},
        "sigmas": [1.0],
        "sampling": {"n0": 4, "n": 8, "alpha": 0.05, "chunk_size": 8},
        "images_per_job": 2,
        "figures": {"denoised_images": 2, "budget_trajectories": 4, "dpi": 60},
        **changes,
    }
    # The digest of the paper's own files must not survive the merge with ours.
    (folder / "small.yaml").write_text(yaml.safe_dump(config))
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub or server.address,
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_DISABLE_XET": "1",
        **dict(environment),
    }
    command = [SNAKEMAKE, "--cores", "2", *arguments, "--configfile", *configfiles, "small.yaml"]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


WITHOUT_NETWORK = """
import sys


def refuse(event, arguments):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and not isinstance(arguments[1], str)):
        with open({asked!r}, "a") as file:
            print(event, arguments, sys.argv, file=file)
        raise OSError("there is no network")


sys.addaudithook(refuse)
"""


@pytest.fixture
def without_network(tmp_path):
    """An environment in which no process of Python gets anywhere, and whoever tries is noted in a file."""
    asked = tmp_path / "asked"
    (tmp_path / "without").mkdir()
    (tmp_path / "without/sitecustomize.py").write_text(WITHOUT_NETWORK.format(asked=str(asked)))
    paths = [str(tmp_path / "without"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}, asked


def test_from_nothing_to_tables_without_a_network_once_everything_is_fetched(server, tmp_path, without_network):
    folder = copy_project(tmp_path / "run")
    environment, asked = without_network
    fetched = run(folder, server, "fetch")
    assert fetched.returncode == 0, fetched.stdout[-4000:] + fetched.stderr[-4000:]
    assert not (folder / "results").exists()
    server.asked.clear()
    done = run(folder, server, environment=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert server.asked == []
    assert not asked.exists(), asked.read_text()
    results = folder / "results/imagenet"
    images = pd.read_csv(results / "images.csv")
    assert list(images["class_name"]) == ["tench", "hammerhead"]
    table = pd.read_csv(results / "tables/certified_accuracy.csv")
    assert len(table) == 6
    assert set(table["paper_percent"]) == {62.0, 57.6, 61.6, 58.8, 60.4, 61.2}
    assert "(paper 62.0" in (results / "tables/certified_accuracy.md").read_text()
    assert (results / "figures/vote_distribution.png").exists()


def test_the_network_is_really_refused(server, without_network):
    environment, asked = without_network
    code = f"import urllib.request; urllib.request.urlopen({server.address!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert "there is no network" in done.stderr
    assert "socket." in asked.read_text()


def test_without_a_gpu_the_paper_is_refused_before_any_download(server, tmp_path):
    folder = copy_project(tmp_path)
    done = run(folder, server, device="auto")
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "this machine has no GPU" in text
    assert "config/digits.yaml" in text
    assert not (folder / "resources").exists()
    assert run(folder, server, "--dry-run", device="auto").returncode == 0


def test_several_jobs_at_once_are_refused_where_gpus_have_no_names(server, tmp_path, monkeypatch):
    """AMD's: jobs would all have the first."""
    folder, programs = copy_project(tmp_path / "project"), tmp_path / "programs"
    programs.mkdir()
    for name, text in {"rocm-smi": "GPU[0]: Instinct", "nvidia-smi": ""}.items():
        (programs / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = run(folder, server, "--resources", "gpu=2", device="auto")
    assert done.returncode != 0
    assert "gpu=2: this machine has no names for its GPUs" in done.stdout + done.stderr
    assert not (folder / "resources").exists()


def test_no_account_and_no_space_are_told_before_any_download(server, tmp_path):
    folder = copy_project(tmp_path)
    image_net = {**described(server, "/ILSVRC2012_img_val.tar", "md5"), "urls": [server.address + "/account/val.tar"]}
    for download, message in (
        (image_net, r"dataset\.download can't be downloaded: .* answers 403 .*set dataset\.source to it"),
        (
            {**image_net, "size": 10**18},
            r"too little for what .* dataset\.download \(1,000,000,000\.0 GB\) and diffusion",
        ),
    ):
        server.asked.clear()
        done = run(folder, server, dataset={"images": 2, "download": download})
        assert done.returncode != 0
        assert re.search(message, done.stdout + done.stderr), done.stdout + done.stderr
        assert not (folder / "resources").exists()
    assert server.asked == [], "without space, nobody need be asked"


def test_a_wrong_checksum_is_an_error_and_later_runs_recover(server, tmp_path):
    folder = copy_project(tmp_path)
    wrong = {**described(server, "/256x256_diffusion_uncond.pt", "sha256"), "sha256": "0" * 64}
    changes = {"diffusion": {"batch_size": 4, "unet": UNET, "download": wrong}}
    done = run(folder, server, "--retries", "0", "obtain_diffusion", **changes)
    assert done.returncode != 0
    assert "instead of 0000" in done.stdout + done.stderr
    assert not list(folder.glob("resources/imagenet/diffusion-*/weights"))
    assert run(folder, server, "obtain_diffusion").returncode == 0


def test_the_classifier_comes_from_the_cache_where_there_is_no_hub(server, tmp_path):
    folder = copy_project(tmp_path)
    assert run(folder, server, "obtain_classifier").returncode == 0
    weights = next(folder.glob("resources/imagenet/classifier-*/weights"))
    first = weights.read_bytes()
    weights.unlink()
    done = run(folder, server, "obtain_classifier", hub="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr[-3000:]
    assert weights.read_bytes() == first
    description = json.loads(weights.with_name("description.json").read_text())
    assert description["architecture"] == "resnet10t"
    assert description["revision"] == "main"


def test_cifar10_from_nothing_to_tables(server, tmp_path):
    folder = copy_project(tmp_path)
    (folder / "list.csv").write_text("number,label\n0,0\n20,0\n")
    done = run(
        folder,
        server,
        "tables",
        configfiles=["config/cifar10.yaml"],
        dataset={"list": "list.csv", "images": 2, "download": described(server, "/cifar-10-binary.tar.gz", "md5")},
        diffusion={
            "batch_size": 4,
            "most_error": None,
            "unet": {
                "num_channels": 32,
                "num_res_blocks": 1,
                "channel_mult": [1, 1],
                "attention_resolutions": [16],
            },
            "download": {"urls": [server.address + "/improved_diffusion.pt"]},
        },
        classifier={"batch_size": 4, "least_accuracy": None},
        sigmas=[0.5],
        methods={"densepure": None},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    results = folder / "results/cifar10"
    assert list(pd.read_csv(results / "images.csv")["class_name"]) == ["airplane", "airplane"]
    assert len(pd.read_csv(results / "tables/certified_accuracy.csv")) == 4
