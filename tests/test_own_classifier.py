"""Classifiers that are trained on what a method shows them: that images and predictions are those of certification."""

import numpy as np
import pandas as pd
import pytest
import torch
from studies import own_classifier
from studies.held_out import load_classifier
from studies.own_classifier import SEED, Purifier, kept, lines, probabilities, true_class

from adds.data.digits import load_split
from adds.data.images import Picture
from adds.methods.majority import majority
from adds.models.embedded import embedded_pipeline
from adds.models.training import TrainingSettings
from adds.sampling.counting import Request
from adds.sampling.sampler import Sampler
from tests.workflow import PROJECT

WEIGHTS = PROJECT / "weights/digits"
SIGMA = 0.6


@pytest.fixture(scope="module")
def pipeline():
    return embedded_pipeline(WEIGHTS)


@pytest.fixture(scope="module")
def clean():
    return load_classifier(WEIGHTS / "classifier.safetensors")


@pytest.fixture(scope="module")
def digits():
    train, test = load_split()
    return train[np.arange(12)], test[np.arange(8)]


@pytest.mark.parametrize(("method", "votes"), [("carlini", 1), ("densepure", 5), ("adds", 5), ("adds_oneshot", 1)])
def test_predictions_are_those_of_certification(pipeline, clean, digits, method, votes, tmp_path):
    _, test = digits
    shown = kept(tmp_path, Purifier(pipeline, method, SIGMA), test, votes=votes, samples=2)
    assert shown.shape == (2, len(test), votes, 1, 8, 8)
    sampler = Sampler(method, pipeline, SIGMA, votes=votes, seed=SEED)
    pictures = [
        Picture.of(image, int(number)) for image, number in zip(test.images, test.numbers.tolist(), strict=True)
    ]
    chunks = sampler.draw([Request(picture, "estimation", 0, 2) for picture in pictures])
    certified = np.stack([majority(chunk.ballots) for chunk in chunks])
    expected = (certified == test.labels[:, None]).mean(axis=1)
    assert true_class(clean, shown, test.labels).tolist() == expected.tolist()


def test_images_that_were_made_are_not_made_again(pipeline, digits, tmp_path, monkeypatch):
    _, test = digits
    purifier = Purifier(pipeline, "carlini", SIGMA)
    first = kept(tmp_path, purifier, test, votes=1, samples=2)
    monkeypatch.setattr(Purifier, "shown", lambda *_, **__: pytest.fail("again"))
    assert np.array_equal(kept(tmp_path, purifier, test, votes=1, samples=2), first)


def test_every_method_is_compared_by_three_classifiers(pipeline, clean, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(own_classifier, "TRAINING", TrainingSettings(steps=3, batch_size=4, learning_rate=1e-3))
    monkeypatch.setattr(own_classifier, "SAMPLES", 2)
    before = [parameter.clone() for parameter in clean.parameters()]
    found = list(lines(probabilities(pipeline, clean, SIGMA, *digits, tmp_path)))
    assert all(torch.equal(one, other) for one, other in zip(before, clean.parameters(), strict=True))
    names = [line.split(" | ")[0].strip("| ") for line in found[2:]]
    assert names == ["Carlini et al.", "DensePure, 5 votes", "ADDS, 5 votes", "ADDS w/o unguided denoising"]
    assert "(" not in found[2], "nothing to compare it to"
    assert all(line.count("(") == 3 for line in found[3:])
    assert len({line.split(" | ")[3] for line in found[2:]}) > 1


def test_the_table_of_the_document_is_made_of_what_was_found():
    found = pd.read_csv(PROJECT / "docs/fashion/own_classifier.csv")
    assert found["number"].nunique() == 250
    assert "\n".join(lines(found)) in (PROJECT / "docs/fashion.md").read_text()
