"""Loading networks and images: what is right loads, what is wrong is named."""

import io
import json
import pickle
from dataclasses import asdict

import numpy as np
import pytest
import torch
from adds.assets import choose_device, load_classifier
from adds.classifiers import (
    BatchedClassifier,
    SmallClassifier,
    TimmClassifier,
    TimmDescription,
    import_timm,
    load_small_classifier,
)
from adds.listing import first_images
from PIL import Image
from torch import nn

from adds.data.digits import prepare_digits
from adds.data.images import load_image
from adds.diffusion.denoiser import Denoiser
from adds.models.unet import load_unet
from adds.models.weights import describe_model, load_weights, read_description
from tests.conftest import TINY_UNET, random_unet


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "unet.pt"
    torch.save(random_unet().state_dict(), path)
    return path


def test_a_checkpoint_loads_whole(checkpoint):
    x, t = torch.randn(2, 1, 8, 8), torch.tensor([3, 500])
    loaded = load_unet(checkpoint, TINY_UNET)
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in random_unet().state_dict().items())
    assert float((loaded(x, t) - random_unet()(x, t)).abs().max()) < 1e-5  # attention is fused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("out.2.bias"), r"out\.2\.bias is missing"),
        (lambda state: state.update(extra=torch.zeros(1)), "extra is not expected"),
        (
            lambda state: state.update({"out.2.bias": torch.zeros(6)}),
            r"out\.2\.bias has shape \(6,\) instead of \(2,\)",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(checkpoint, change, message):
    state = torch.load(checkpoint, weights_only=True)
    change(state)
    torch.save(state, checkpoint)
    with pytest.raises(ValueError, match=message):
        load_unet(checkpoint, TINY_UNET)


class Bomb:
    def __reduce__(self):
        return (print, ("a pickle ran code",))


def test_checkpoints_can_not_run_code(tmp_path, capsys):
    path = tmp_path / "bomb.pt"
    torch.save({"weight": Bomb()}, path)
    with pytest.raises(ValueError, match=r"bomb\.pt is not a checkpoint"):
        load_weights(nn.Linear(1, 1), path)
    assert "a pickle ran code" not in capsys.readouterr().out


def test_other_files_are_not_checkpoints(tmp_path):
    garbage, listed = tmp_path / "garbage.pt", tmp_path / "list.pt"
    garbage.write_bytes(pickle.dumps("hello") + b"garbage")
    torch.save([torch.zeros(1)], listed)
    with pytest.raises(ValueError, match=r"garbage\.pt is not a checkpoint"):
        load_weights(nn.Linear(1, 1), garbage)
    with pytest.raises(ValueError, match="not a state dict"):
        load_weights(nn.Linear(1, 1), listed)
    with pytest.raises(FileNotFoundError):
        load_weights(nn.Linear(1, 1), tmp_path / "missing.pt")


def test_broken_networks_are_noticed(schedule):
    class Nan:
        def __call__(self, x_t, _):
            return torch.full((len(x_t), 2, 8, 8), float("nan"))

    grid = schedule.respaced([49, 99])
    with pytest.raises(FloatingPointError, match="NaN or infinity at timestep 99"):
        Denoiser(Nan(), schedule).predict(torch.zeros(1, 1, 8, 8), grid, 1)
    classifier = BatchedClassifier(lambda images: torch.full((len(images), 10), float("nan")), classes=10)
    with pytest.raises(FloatingPointError, match="NaN logits"):
        classifier.predict(torch.zeros(3, 1, 8, 8))
    classifier = BatchedClassifier(lambda images: torch.zeros(len(images), 7), classes=10)
    with pytest.raises(ValueError, match=r"logits of shape \(3, 7\)"):
        classifier.predict(torch.zeros(3, 1, 8, 8))
    with pytest.raises(ValueError, match="batch_size is 0"):
        Denoiser(Nan(), schedule, batch_size=0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        BatchedClassifier(nn.Identity(), classes=2, batch_size=0)


def test_small_classifier_loads(tmp_path):
    torch.save(SmallClassifier().state_dict(), tmp_path / "classifier.pt")
    assert load_small_classifier(tmp_path / "classifier.pt")(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_timm_models_get_their_own_size_and_normalisation(tmp_path):
    """A timm model with random weights, fed images of another size in [-1, 1]."""
    network = import_timm().create_model("resnet10t", pretrained=False)
    description = TimmDescription.of(network)
    model = TimmClassifier(description).eval()
    images = torch.rand(2, 3, 64, 64) * 2 - 1
    seen = []
    model.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert model(images).shape == (2, 1000)
    assert seen[0].shape[-2:] == model.input_size
    restored = seen[0] * model.std + model.mean
    assert float(restored.mean()) == pytest.approx(float((images + 1).mean() / 2), abs=0.02)
    torch.save(model.network.state_dict(), tmp_path / "resnet.pt")
    (tmp_path / "resnet.json").write_text(json.dumps(asdict(description)))
    again = load_classifier(tmp_path / "resnet.pt", {"kind": "timm", "half_precision": True}, torch.device("cpu"))
    assert torch.equal(again(images), model(images))
    (tmp_path / "resnet.json").write_text("{}")
    with pytest.raises(ValueError, match=r"resnet\.json doesn't describe a timm model"):
        TimmDescription.read(tmp_path / "resnet.json")


def test_weights_of_half_precision_are_widened(checkpoint):
    state = {name: value.half() for name, value in torch.load(checkpoint, weights_only=True).items()}
    torch.save(state, checkpoint)
    assert {value.dtype for value in load_unet(checkpoint, TINY_UNET).state_dict().values()} == {torch.float32}


def test_a_model_that_was_exchanged_is_refused(tmp_path):
    weights, description = tmp_path / "model.pt", tmp_path / "model.json"
    weights.write_bytes(b"one network")
    describe_model(weights, {"name": "one"}, description)
    stored = read_description(weights, description)
    assert stored["name"] == "one"
    weights.touch()  # a new time alone doesn't matter
    assert read_description(weights, description) == stored
    weights.write_bytes(b"another network")
    with pytest.raises(ValueError, match=r"model\.pt is not the file that .*model\.json describes any more"):
        read_description(weights, description)


def test_no_gpu_is_said_plainly(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="no GPU"):
        choose_device("cuda")


def test_photographs_are_resized_and_cropped(tmp_path):
    pixels = np.zeros((300, 600, 3), np.uint8)
    pixels[:, 250:350] = 255  # a white bar in the middle survives the crop
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    image = load_image(path, size=64)
    assert image.shape == (3, 64, 64)
    assert float(image[:, :, 32].min()) == 1
    assert float(image[:, :, 0].max()) == 0
    assert 0 <= float(image.min()) <= float(image.max()) <= 1


def test_grey_photographs_become_rgb(tmp_path):
    Image.new("L", (40, 30), 128).save(tmp_path / "grey.png")
    assert load_image(tmp_path / "grey.png", size=16).shape == (3, 16, 16)


def test_a_broken_photograph_is_named(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "JPEG")
    path = tmp_path / "broken.jpeg"
    path.write_bytes(buffer.getvalue()[:200])
    with pytest.raises(ValueError, match=r"broken\.jpeg is not a readable image"):
        load_image(path, size=16)


def test_digits(tmp_path):
    table = prepare_digits(tmp_path / "images")
    assert len(table) == 400
    assert table["index"].is_unique
    image = load_image(table["file"][0], size=8)
    assert image.shape == (1, 8, 8)
    assert 0 <= float(image.min()) < float(image.max()) <= 1
    assert first_images(table, 24).equals(table.head(24))
    with pytest.raises(ValueError, match=r"dataset\.images is 401: this data set has 1 to 400"):
        first_images(table, 401)
