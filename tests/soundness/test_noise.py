import pytest
import torch
from scipy import stats

from adds.diffusion.noise import Noise, box_muller, philox, philox_in_torch, sample_ids, stream_of


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers that are published with Random123
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
@pytest.mark.parametrize("implementation", [philox, philox_in_torch])
def test_philox_known_answers(implementation, counter, key, expected):
    words = implementation(*([torch.tensor([word]) for word in words] for words in (counter, key)))
    assert tuple(int(word) for word in words) == expected


def make(**changes):
    return Noise(**{"seed": 0, "stage": "estimation", "image": 3, "sigma": 0.5, **changes})


def draw(noise=None, samples=(0, 1, 2), **where):
    noise = noise or make()
    return noise.normal((1, 8, 8), samples=torch.tensor(samples), **{"timestep": 1000, **where})


def test_standard_normal():
    values = draw(samples=range(4000)).flatten().numpy()
    assert stats.kstest(values, "norm").pvalue > 0.001
    assert stats.kstest(values**2, stats.chi2(1).cdf).pvalue > 0.001


def test_normals_are_those_of_64_bits():
    """Of the 64 bits behind a radius none is lost where it matters, far out: up to 9.4 sigma."""
    words = torch.randint(0, 2**32, (3, 1000), generator=torch.Generator().manual_seed(0)).unbind()
    words[0][:40], words[1][:20] = 0, torch.arange(20)
    high, low, angle = (word.double() for word in words)
    radius = torch.sqrt(-2 * torch.log(2.0**-32 * high + 2.0**-64 * (low + 0.5)))
    turn = 2 * torch.pi * 2.0**-32 * angle
    expected = torch.stack([radius * torch.cos(turn), radius * torch.sin(turn)], dim=-1)
    assert float(radius.max()) > 9.4
    assert float((box_muller(words) - expected).abs().max()) < 1e-5


def test_coordinates_samples_votes_and_steps_are_uncorrelated():
    """Rows are coordinates of one draw; then the same coordinates of other samples, votes and timesteps."""
    base = draw(samples=range(4000)).flatten(1)
    others = [
        draw(samples=range(4000, 8000)),
        draw(samples=range(4000), votes=1),
        draw(samples=range(4000), timestep=999),
    ]
    for one, other in [(base, base), *[(base, other.flatten(1)) for other in others]]:
        products = (one.double().T @ other.double()) / len(one)
        if other is base:
            products -= torch.eye(products.shape[0])
        scale = torch.full_like(products, 1.0)
        scale.fill_diagonal_(2**0.5 if other is base else 1.0)
        assert float((products / scale).abs().max()) < 5.5 / 4000**0.5
    squares = base.double() ** 2 - 1
    products = (squares.T @ squares) / len(base) / 2
    products.fill_diagonal_(0)
    assert float(products.abs().max()) < 6 / 4000**0.5


def test_a_sample_does_not_depend_on_its_batch():
    everything = draw(samples=range(50))
    assert torch.equal(draw(samples=[17]), everything[17:18])
    assert torch.equal(draw(samples=[40, 3, 9]), everything[[40, 3, 9]])


def test_large_shapes_are_drawn_in_parts(monkeypatch):
    whole = draw(samples=range(50))
    monkeypatch.setattr("adds.diffusion.noise._BLOCKS_AT_ONCE", 7)
    assert torch.equal(draw(samples=range(50)), whole)


def test_odd_shapes():
    assert make().normal((3, 5, 7), samples=torch.arange(2), timestep=0).shape == (2, 3, 5, 7)


@pytest.mark.parametrize(
    "other",
    [
        draw(make(seed=1)),
        draw(make(stage="selection")),
        draw(make(image=4)),
        draw(make(sigma=0.25)),
        draw(votes=1),
        draw(timestep=999),
        draw(samples=(3, 4, 5)),
    ],
    ids=["seed", "stage", "image", "sigma", "vote", "timestep", "sample"],
)
def test_everything_that_names_a_draw_changes_it(other):
    one, other = draw().flatten(), other.flatten()
    assert not torch.isclose(one, other).any()


@pytest.mark.parametrize("change", [{"stage": "selection"}, {"seed": 1}, {"image": 4}, {"sigma": 0.6}])
def test_streams_are_uncorrelated(change):
    one, other = (draw(noise, samples=range(2000)).flatten().numpy() for noise in (make(), make(**change)))
    assert stats.pearsonr(one, other).pvalue > 0.001
    assert stats.pearsonr(abs(one), abs(other)).pvalue > 0.001


def test_streams_side_by_side_are_those_alone():
    """An image's numbers don't depend on which others are drawn with it, and two stages are two streams."""
    alone = [make(), make(image=4), make(stage="selection")]
    where = {"votes": torch.tensor([1, 0, 2, 5]), "timestep": 40}
    numbers = torch.tensor([0, 7, 2**32 - 1, 3])
    for streams in ([0, 1, 2, 1], [2, 2, 2, 2], [0, 0, 1, 0]):
        ids = torch.stack([sample_ids(number, stream) for number, stream in zip(numbers, streams, strict=True)])
        together = Noise.together(alone).normal((3, 5), samples=ids, **where)
        for row, stream in enumerate(streams):
            own = alone[stream].normal((3, 5), samples=numbers, **where)
            assert torch.equal(together[row], own[row])
        assert stream_of(ids).tolist() == streams


def test_what_was_released_of_several_streams_stays_used():
    rest = Noise.together([make(), make(image=4)]).beside(1000)
    with pytest.raises(PermissionError):
        rest.normal((3,), samples=sample_ids(torch.arange(2), 1), timestep=1000)


def test_votes_can_differ_by_row():
    rows = draw(samples=[5, 5, 5], votes=torch.tensor([1, 2, 1]))
    assert torch.equal(rows[0], rows[2])
    assert torch.equal(rows[1:2], draw(samples=[5], votes=2))


ROWS = [(1, 7), (5, 1), (5, 1), (5, 1)]


@pytest.mark.parametrize(
    ("shapes", "keys"),
    [([(1000,)] * 4, (1,)), (ROWS, (1, 1)), (ROWS, (5, 1))],
    ids=["full", "one stream", "a stream for each row"],
)
def test_cpus_and_gpus_draw_the_same_words(shapes, keys):
    """GPUs use torch's integers, CPUs numpy's; what is the same along a row or a column need not be repeated."""
    counter = [torch.randint(0, 2**32, shape) for shape in shapes]
    key = [torch.randint(0, 2**32, keys) for _ in range(2)]
    words = philox(counter, key)
    for counters in (counter, torch.broadcast_tensors(*counter)):
        others = philox_in_torch(counters, key)
        assert all(torch.equal(word, other) for word, other in zip(words, others, strict=True))
