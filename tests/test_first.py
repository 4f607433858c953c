"""What claims need beyond counts: an image's first samples, and how sharp and how true denoised images are."""

import numpy as np
import pytest
import torch

from adds.data.images import Picture
from adds.methods.majority import UNCAST
from adds.registry import Variant
from adds.sampling.closeups import detail_of, sharpness
from adds.sampling.counting import Tally
from adds.sampling.first import FirstSamples
from adds.sampling.ledger import Chunk, FamilyLedgers
from adds.sampling.stopping import Certified, SampleSize, Stop
from tests.test_ledger import CHUNK, identity_of, images_of, job, sampler_in_closed_form


def chunk(first, ballots, stops=(), spent=()):
    classes, stop_timestep, spent_before = (np.array(values, np.uint16) for values in (ballots, stops, spent))
    return Chunk("adds", 0, "", "estimation", first, classes, stop_timestep=stop_timestep, spent_before=spent_before)


def test_first_samples_are_counted_once_and_no_further():
    """Chunks overlap, and one reaches beyond the first samples."""
    one = chunk(0, [[1, 2, 1, 1, UNCAST], [3, 3, 3, UNCAST, UNCAST]], (100, 200), (500, 0))
    two = chunk(1, [[3, 3, 3, UNCAST, UNCAST], [2, 1, 2, 1, 2], [0] * 5], (200, 300, 9), (0, 250, 9))
    tally = Tally(np.zeros(4, np.int64), first=FirstSamples.none_yet(4, 3))
    for found in (one, two):
        tally.add(found, Variant("adds", 5), limit=4)
    assert tally.counts.tolist() == [1, 1, 1, 1]
    columns = tally.first.columns()
    assert columns["counts_first"] == [0, 1, 1, 1]
    assert (columns["ballot_pairs"], columns["ballot_disagreements"]) == (3, 2)
    assert columns["stop_timestep"] == pytest.approx(200)
    assert columns["spent_before"] == pytest.approx(0.25)


def test_one_vote_has_no_pairs_of_ballots_and_no_guidance_no_timestep():
    tally = Tally(np.zeros(4, np.int64), first=FirstSamples.none_yet(4, 2))
    tally.add(chunk(0, [[1, 2, 1], [3, 3, 3]]), Variant("adds", 1), limit=2)
    columns = tally.first.columns()
    assert columns["counts_first"] == [0, 1, 0, 1]
    assert columns["ballot_pairs"] == 0
    assert columns["stop_timestep"] != columns["stop_timestep"]


@pytest.mark.parametrize(("at_least", "chunk_size", "expected"), [(0, 8, 8), (9, 8, 16), (16, 8, 16), (0, 32, 24)])
def test_sequential_sampling_draws_so_many_in_any_case(at_least, chunk_size, expected):
    size = SampleSize(n0=8, n=24, stop=Stop([Certified("pair", 0.0)], at_least=at_least))
    assert size.in_any_case(chunk_size) == expected
    assert SampleSize(n0=8, n=24).in_any_case(chunk_size) == 24


def counted(schedule, store, variant, size):
    """A white image, which RS is sure of, and two grey ones."""
    images = images_of(5, 6, 7, stored=[np.full((1, 8, 8), pixel, np.uint8) for pixel in (255, 128, 120)])
    ledgers = FamilyLedgers(store, identity_of(family=variant.method), list(images), variant)
    return job(sampler_in_closed_form(schedule, variant), images, ledgers, size)


def test_a_job_that_stops_early_counts_the_first_samples_of_every_image_alike(schedule, tmp_path):
    size = SampleSize(n0=8, n=40, alpha=0.05, stop=Stop([Certified("pair", 0.0)], futility=0.0))
    counts = counted(schedule, tmp_path, Variant("rs", 1), size)
    assert counts["n"].nunique() > 1
    assert counts["counts_first"].map(sum).eq(CHUNK).all()
    assert counts["stop_timestep"].isna().all()


def test_a_job_records_how_votes_disagree_and_where_guidance_ends(schedule, tmp_path):
    counts = counted(schedule, tmp_path, Variant("adds", 3), SampleSize(n0=8, n=16))
    assert counts["counts_first"].tolist() == counts["counts_estimation"].tolist()
    assert counts["ballot_pairs"].eq(16).all()
    assert 0 < counts["ballot_disagreements"].sum() < 3 * 16
    assert counts["stop_timestep"].between(1, 998).all()
    assert counts["spent_before"].between(0, 1).all()


def test_a_blurred_image_is_less_sharp_and_a_flat_one_not_at_all():
    image = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    blurred = torch.nn.functional.avg_pool2d(image, 3, stride=1, padding=1)
    assert (sharpness(blurred) < sharpness(image)).all()
    assert sharpness(torch.full((1, 1, 4, 4), 0.5)).item() == 0
    assert sharpness(torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])).item() == pytest.approx(np.sqrt(0.5))


def test_detail_is_measured_per_method_and_image(gaussian_pipeline, image):
    """More noise takes the denoised images further from the original; RS shows the classifier no image of its own."""
    pictures = [Picture(image.numpy(), number, None, "", "") for number in (3, 8)]
    settings = {"guidance_scale": 0.8, "seed": 0, "samples": 4}
    methods = {"rs": {}, "carlini": {}, "adds": {}}
    near, far = (detail_of(gaussian_pipeline, pictures, methods, sigma=sigma, **settings) for sigma in (0.2, 0.6))
    assert near[["method", "number"]].to_numpy().tolist() == [[m, n] for m in ("carlini", "adds") for n in (3, 8)]
    assert (far["distance"] > near["distance"]).all()
    assert near["votes"].eq(1).all()
    assert near.loc[0, "distance"] != near.loc[2, "distance"], "noise is an image's own"
