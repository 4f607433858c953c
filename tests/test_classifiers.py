"""Kinds of classifiers: what `obtain` leaves is what `load` gives, and nothing else is loaded in its place."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch
from torch import nn

from adds.models.classifiers import python, small, timm
from adds.models.classifiers.small import SmallClassifier
from adds.models.classifiers.timm import TimmClassifier, TimmDescription, import_timm
from adds.models.pipeline import classifier_kind, load_pipeline
from adds.models.weights import DESCRIPTION, WEIGHTS, checksums, describe_model, save_weights, sha256_of
from adds.registry import CLASSIFIERS
from tests.test_models import BOMBS, FORMATS, save_bomb, save_torch

CPU = torch.device("cpu")
IMAGES = torch.tensor([[-1.0, -0.5, 0.0, 1.0]]).view(1, 1, 2, 2)
SEES = """
from torch import nn

RANGE = {range}
build = nn.Flatten
"""
LINEAR = """
from torch import nn

RANGE = (-1, 1)

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
"""


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Nothing here may ask the hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "classifier"
    path.mkdir()
    return path


@pytest.fixture
def obtained(tmp_path, folder):
    """Obtain a classifier that some Python code builds, and return its folder."""

    def obtain(code, name="network.py", **order):
        (tmp_path / name).write_text(code)
        shape = [1, 2, 2]
        python.obtain({"kind": "python", "classes": 3, "shape": shape, "file": str(tmp_path / name), **order}, folder)
        return folder

    return obtain


def linear(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).requires_grad_(False)


@pytest.fixture(scope="module")
def network():
    """A timm model with random weights."""
    torch.manual_seed(0)
    return import_timm().create_model("resnet10t", pretrained=False, num_classes=7).eval().requires_grad_(False)


def order(**changes):
    return {"kind": "timm", "name": "resnet10t", "revision": "main", "classes": 7, **changes}


def test_every_kind_of_the_registry_can_be_obtained_and_loaded():
    for kind in map(classifier_kind, CLASSIFIERS):
        assert callable(kind.obtain)
        assert callable(kind.load)


# python


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ("(0, 1)", [0, 0.25, 0.5, 1]),
        ("(-1, 1)", [-1, -0.5, 0, 1]),
        ("[0.0, 1.0]", [0, 0.25, 0.5, 1]),
    ],
)
def test_a_network_gets_images_in_its_range(obtained, values, seen):
    network = python.load(obtained(SEES.format(range=values)), {}, CPU)
    assert network(IMAGES)[0].tolist() == seen


@FORMATS
def test_weights_of_a_file_are_the_networks(tmp_path, obtained, save):
    save(linear(), tmp_path / "mine")
    network = python.load(obtained(LINEAR, weights=str(tmp_path / "mine")), {}, CPU)
    assert torch.allclose(network(IMAGES), linear()(IMAGES))
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_without_a_file_weights_are_what_the_code_makes_them(obtained):
    code = LINEAR.replace("def build():", "def build():\n    import torch\n\n    torch.manual_seed(0)")
    network = python.load(obtained(code), {}, CPU)
    assert torch.allclose(network(IMAGES), linear()(IMAGES))


def test_without_a_file_every_job_has_the_same_weights(obtained):
    folder = obtained(LINEAR)  # it starts at random
    first, second = (python.load(folder, {}, CPU)(IMAGES) for _ in range(2))
    assert torch.equal(first, second)


def test_an_empty_file_of_weights_is_refused(tmp_path, obtained):
    (tmp_path / "mine").touch()
    with pytest.raises(ValueError, match="is not a checkpoint of tensors"):
        obtained(LINEAR, weights=str(tmp_path / "mine"))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (SEES.replace("RANGE", "OTHER").format(range="(0, 1)"), "must say which values its images have"),
        (SEES.format(range="(0, 255)"), "must say which values its images have"),
        (SEES.replace("build", "other").format(range="(0, 1)"), r"has no function build\(\)"),
        ("RANGE, build = (0, 1), 'network'", r"has no function build\(\)"),
        ("RANGE, build = (0, 1), lambda: 7", "returned int instead of a torch.nn.Module"),
        ("RANGE, build = (0, 1), lambda: None", "returned NoneType instead of a torch.nn.Module"),
    ],
)
def test_code_that_lacks_something_is_named(obtained, folder, code, message):
    with pytest.raises(ValueError, match=rf"network\.py.* {message}"):
        obtained(code)
    assert not (folder / DESCRIPTION).exists()


def test_a_range_that_is_none_is_named(obtained):
    with pytest.raises(ValueError, match="must say which values its images have"):
        obtained(SEES.format(range="None"))


SEES_ITS_BATCH = """
from torch import nn

RANGE = (-1, 1)

def build():
    return nn.Sequential(nn.BatchNorm2d(1, track_running_stats={running}), nn.Flatten(), nn.Linear(4, 3))
"""


def test_a_network_that_sees_its_batch_is_refused(obtained):
    """Its samples are not independent: a class that has the batch's luck would be certified too far."""
    with pytest.raises(ValueError, match=r"network\.py builds gives an image other logits beside other images"):
        obtained("import torch\ntorch.manual_seed(0)\n" + SEES_ITS_BATCH.format(running=False))
    obtained("import torch\ntorch.manual_seed(0)\n" + SEES_ITS_BATCH.format(running=True))


def test_code_may_have_data_classes(obtained):
    settings = "from dataclasses import dataclass\n\n@dataclass\nclass Settings:\n    width: int = 3\n"
    obtained("from __future__ import annotations\n" + settings + SEES.format(range="(0, 1)"))


def test_what_is_no_code_is_named(tmp_path, obtained, folder):
    with pytest.raises(ValueError, match=r"network\.txt: it must be a Python file"):
        obtained(LINEAR, name="network.txt")
    with pytest.raises(SyntaxError, match=r"network\.py"):
        obtained("this is no Python")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.py"):
        python.obtain({"classes": 3, "shape": [1, 2, 2], "file": str(tmp_path / "nowhere.py")}, folder)


def test_weights_that_do_not_fit_or_exist_are_named(tmp_path, obtained):
    save_weights(nn.Sequential(nn.Flatten(), nn.Linear(4, 7)), tmp_path / "mine")
    with pytest.raises(ValueError, match=r"1\.weight has shape \(7, 4\) instead of \(3, 4\)"):
        obtained(LINEAR, weights=str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError, match="nowhere doesn't exist"):
        obtained(LINEAR, weights=str(tmp_path / "nowhere"))


def test_code_that_was_changed_is_refused(tmp_path, obtained):
    code = SEES.format(range="(0, 1)")
    folder = obtained(code)
    before = checksums(folder)
    assert before["code"] == sha256_of(tmp_path / "network.py")
    (tmp_path / "network.py").write_text(code + "# only a comment, but who knows\n")
    with pytest.raises(ValueError, match=r"network\.py is not the code that .*description\.json describes any more"):
        python.load(folder, {}, CPU)
    (tmp_path / "network.py").unlink()
    with pytest.raises(ValueError, match="describes any more"):
        python.load(folder, {}, CPU)
    (tmp_path / "network.py").write_text(code)
    python.load(folder, {}, CPU)
    assert checksums(obtained(SEES.format(range="(-1, 1)")))["code"] != before["code"]


def test_weights_that_were_exchanged_are_refused(tmp_path, obtained):
    mine = tmp_path / "mine.safetensors"
    save_weights(linear(seed=0), mine)
    folder = obtained(LINEAR, weights=str(mine))
    assert checksums(folder)["sha256"] == sha256_of(mine)
    save_weights(linear(seed=1), mine)
    os.utime(mine, ns=(0, 0))  # clocks may be too coarse to tell
    with pytest.raises(ValueError, match="weights is not the file"):
        checksums(folder)


@BOMBS
def test_weights_can_not_run_code(tmp_path, obtained, folder, capsys, kind):
    bomb = save_bomb(tmp_path / "bomb.pt", kind)
    with pytest.raises(ValueError, match="is not a checkpoint of tensors"):
        obtained(LINEAR, weights=str(bomb))
    with pytest.raises(ValueError, match="is not a checkpoint of tensors"):
        timm.obtain({"name": "resnet10t", "classes": 7, "weights": str(bomb)}, folder)
    with pytest.raises(ValueError, match="is not a checkpoint of tensors"):
        small.obtain({"classes": 10, "weights": str(bomb)}, folder)
    assert "a pickle ran code" not in capsys.readouterr().out
    assert not (folder / DESCRIPTION).exists()


def test_a_pipeline_can_do_without_a_diffusion_model(obtained):
    diffusion = {"schedule": "linear", "timesteps": 1000, "rescale_timesteps": False, "steps": 20}
    pipeline = load_pipeline(
        {"diffusion": diffusion, "classifier": {"kind": "python", "classes": 64}},
        {"diffusion": 2, "classifier": 2},
        {"classifier": obtained(SEES.format(range="(-1, 1)"))},
        device=CPU,
    )
    assert pipeline.classifier.predict(torch.eye(64).view(64, 1, 8, 8)).tolist() == list(range(64))
    assert pipeline.grid.timesteps[-1] == 999
    with pytest.raises(ValueError, match="without that network"):
        pipeline.denoiser.predict(torch.zeros(2, 1, 8, 8), pipeline.grid, 3)


@pytest.mark.parametrize("kind", ["python", "timm"])
def test_a_file_of_ones_own_is_never_written_to(tmp_path, folder, network, monkeypatch, kind):
    mine = tmp_path / "mine"
    mine.write_bytes(b"years of training")
    (folder / WEIGHTS).symlink_to(mine)
    (tmp_path / "network.py").write_text(LINEAR)
    monkeypatch.setattr(timm, "pretrained", lambda _name, _revision: network)
    classifier_kind(kind).obtain(order(kind=kind, shape=[1, 2, 2], file=str(tmp_path / "network.py")), folder)
    assert mine.read_bytes() == b"years of training"


# small


@FORMATS
def test_small_classifiers_load(tmp_path, folder, save):
    network = SmallClassifier(5)
    save(network, tmp_path / "mine")
    small.obtain({"kind": "small", "classes": 5, "weights": str(tmp_path / "mine")}, folder)
    images = torch.rand(2, 1, 8, 8)
    loaded = small.load(folder, {"classes": 5}, CPU)
    assert torch.allclose(loaded(images), network(images), atol=1e-6)
    assert checksums(folder) == {"sha256": sha256_of(tmp_path / "mine")}
    with pytest.raises(ValueError, match=r"features\.7\.bias has shape \(5,\) instead of \(10,\)"):
        small.obtain({"kind": "small", "classes": 10, "weights": str(tmp_path / "mine")}, folder)


# timm


def test_timm_models_get_their_own_size_and_normalisation(network, folder):
    """Fed images of another size in [-1, 1]."""
    description = TimmDescription.of(network)
    model = TimmClassifier(description).eval()
    images = torch.rand(2, 3, 64, 64) * 2 - 1
    seen = []
    model.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert model(images).shape == (2, 7)
    assert seen[0].shape[-2:] == model.input_size == (176, 176)
    restored = seen[0] * model.std + model.mean
    assert float(restored.mean()) == pytest.approx(float((images + 1).mean() / 2), abs=0.02)
    save_torch(model.network, folder / WEIGHTS)
    describe_model(folder, asdict(description))
    again = timm.load(folder, {"half_precision": True}, CPU)
    assert torch.equal(again(images), model(images))
    (folder / DESCRIPTION).write_text("{}")
    with pytest.raises(ValueError, match=r"description\.json doesn't describe a timm model"):
        timm.load(folder, {"half_precision": True}, CPU)


def loaded_from_file(network, folder, path, save):
    save(network, path)
    timm.obtain(order(weights=str(path)), folder)
    images = torch.rand(2, 3, 176, 176) * 2 - 1
    mean, std = (torch.tensor(network.pretrained_cfg[key]).view(-1, 1, 1) for key in ("mean", "std"))
    logits = timm.load(folder, {"half_precision": False}, CPU)(images)
    assert torch.allclose(logits, network(((images + 1) / 2 - mean) / std), atol=1e-5)
    found = checksums(folder)
    assert found["sha256"] == sha256_of(path)
    assert found["architecture"] == "resnet10t"
    assert found["input_size"] == [176, 176]
    assert found["mean"] == list(network.pretrained_cfg["mean"])


def test_timm_weights_of_a_file_in_torchs_format(network, folder, tmp_path):
    loaded_from_file(network, folder, tmp_path / "mine.pt", save_torch)


def test_timm_weights_of_a_file_of_safetensors(network, folder, tmp_path):
    loaded_from_file(network, folder, tmp_path / "mine.safetensors", save_weights)


def test_a_wrong_number_of_classes_is_named(network, folder, tmp_path, monkeypatch):
    save_torch(network, tmp_path / "mine.pt")
    with pytest.raises(ValueError, match=r"fc\.weight has shape \(7, 512\) instead of \(9, 512\)"):
        timm.obtain(order(weights=str(tmp_path / "mine.pt"), classes=9), folder)
    monkeypatch.setattr(timm, "pretrained", lambda _name, _revision: network)
    with pytest.raises(ValueError, match=r"classifier\.classes is 9, but resnet10t has 7 classes"):
        timm.obtain(order(classes=9), folder)
    assert not (folder / DESCRIPTION).exists()


def test_what_the_hub_gives_is_what_jobs_load(network, folder, monkeypatch):
    asked = []
    monkeypatch.setattr(timm, "pretrained", lambda *which: asked.append(which) or network)
    timm.obtain(order(revision="abc"), folder)
    assert asked == [("resnet10t", "abc")]
    loaded = timm.load(folder, {"half_precision": True}, CPU).network.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in network.state_dict().items())
    assert json.loads((folder / DESCRIPTION).read_text())["revision"] == "abc"
    with pytest.raises(FileNotFoundError, match="nowhere doesn't exist"):
        timm.obtain(order(weights="nowhere"), folder)
    assert len(asked) == 1, "where a file is named the hub isn't asked"


def test_a_model_that_its_description_does_not_give_is_refused(network, folder, monkeypatch):
    monkeypatch.setattr(timm, "pretrained", lambda _name, _revision: network)
    louder = network.register_forward_hook(lambda _network, _inputs, logits: 2 * logits)
    try:
        with pytest.raises(ValueError, match="resnet10t is more than its architecture and its weights"):
            timm.obtain(order(), folder)
    finally:
        louder.remove()
    assert not (folder / DESCRIPTION).exists()


IMPORTING = """
import sys
sys.path.insert(0, {folder!r})
sys.modules.pop("helper", None)
from helper import Net

RANGE = (-1, 1)
build = Net
"""
HELPER = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, images):
        return {sign}self.linear(images.flatten(1))
"""


def test_code_that_the_users_file_imports_is_seen_in_what_it_predicts(obtained, tmp_path, monkeypatch):
    """The file is the same and so are the weights, but the network is another one."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setattr("sys.path", sys.path.copy())
    (tmp_path / "helper.py").write_text(HELPER.format(sign=""))
    folder = obtained(IMPORTING.format(folder=str(tmp_path)))
    before = checksums(folder)
    python.load(folder, {}, torch.device("cpu"))
    (tmp_path / "helper.py").write_text(HELPER.format(sign="-"))
    with pytest.raises(ValueError, match="something that it imports has changed"):
        python.load(folder, {}, torch.device("cpu"))
    weights = tmp_path / "weights"
    weights.write_bytes((folder / WEIGHTS).read_bytes())
    assert checksums(obtained(IMPORTING.format(folder=str(tmp_path)), weights=str(weights))) != before


RANDOM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.randn(3, 4), persistent=False)

    def forward(self, images):
        return images.flatten(1) @ self.scale.T

RANGE = (-1, 1)
build = Net
"""


def test_a_network_that_is_another_one_each_time_is_refused(obtained):
    with pytest.raises(ValueError, match="builds another network each time"):
        obtained(RANDOM)


LOADS = """
import torch
library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):  # as torchvision's extension does where it loads
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
IMPORTS = """
from adds.models.classifiers import timm
timm.import_timm().create_model("resnet10t", pretrained=False)
timm.import_timm()
print(len(timm._declared))
"""


@pytest.mark.parametrize(("before", "declared"), [(LOADS, "0"), ("", "1")], ids=["torchvision loads", "it doesn't"])
def test_operators_are_declared_only_where_torchvision_lacks_them(before, declared):
    """Declared a second time they would end the process."""
    if not before and torch.version.cuda is not None:
        pytest.skip("torchvision's extension loads here")
    done = subprocess.run([sys.executable, "-c", before + IMPORTS], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [declared], done.stderr
