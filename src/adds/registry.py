"""The menu: one record for every method, data set, kind of classifier and bound.

A new one is a record here and, but for bounds, a module of the same name:

    METHODS      adds/methods/<name>.py             vote(pipeline, query, samples, noise), work(schedule, grid, query)
    DATASETS     adds/data/<name>.py                read(source, rows, form)
    CLASSIFIERS  adds/models/classifiers/<name>.py  obtain(order, folder), load(folder, settings, device)
    BOUNDS       adds/certificates/bounds.py        a function <name>(counts, prediction, sigma, alpha, mode)

Everything else finds it by its name: the workflow, the estimate, tables and figures. Standard library only, because
Snakemake's own process reads this file too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

Stage = Literal["selection", "estimation"]
"""What samples are for: to select the class, or to estimate its probability."""

Mode = Literal["fixed", "sequential"]
"""Whether the number of samples was fixed beforehand, or sampling was stopped by looking at the counts."""

Network = Literal["diffusion", "classifier"]
"""The networks of the workflow. Which of them a method reads says what its jobs wait for."""


class Variant(NamedTuple):
    """A method and its number of votes: a row of the paper's tables."""

    method: str
    votes: int


@dataclass(frozen=True)
class Method:
    """What everybody but the method's own module has to know of it.

    ``counts`` is the checksum of the ballots of a short run in a world of closed form (tests/soundness/golden.py):
    it is part of every sample's identity, so that a change of code that gives other ballots draws anew.
    """

    name: str
    title: str
    counts: str
    colour: str
    dashes: tuple[float, ...] = ()
    takes_votes: bool = False
    guided: bool = False
    """Whether it needs a guidance scale for every sigma."""
    networks: tuple[Network, ...] = ("diffusion", "classifier")
    contained_in: str | None = None
    """The method whose samples hold this one's, so that they need not be drawn again."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What can be configured beside votes, each with its values; the first is the default."""


@dataclass(frozen=True)
class Dataset:
    """A data set: a list of images in the configuration, and a source that their pixels are read from."""

    name: str
    title: str
    archive: str | None = None
    """The file that it is downloaded as."""
    hint: str = ""
    """What to do where the download isn't allowed."""
    needs_source: bool = True


@dataclass(frozen=True)
class ClassifierKind:
    """A kind of classifier; ``trainable`` ones the workflow can train itself."""

    name: str
    title: str
    trainable: bool = False


@dataclass(frozen=True)
class Bound:
    """A bound that turns counts into radii; ``radii`` is the checksum of the radii of a fixed table of counts."""

    name: str
    title: str
    radii: str


Record = TypeVar("Record", Method, Dataset, ClassifierKind, Bound)


def _by_name(*records: Record) -> dict[str, Record]:
    return {record.name: record for record in records}


METHODS = _by_name(
    Method(
        "rs",
        "RS",
        counts="8188bfe3c4e528bd",
        colour="#7f7f7f",
        dashes=(1, 1),
        networks=("classifier",),
    ),
    Method(
        "carlini",
        "Carlini et al.",
        counts="13f21f1ff4b68342",
        colour="#000000",
        dashes=(4, 1.5),
    ),
    Method(
        "densepure",
        "DensePure",
        counts="fb7c068b03e21e69",
        colour="#0072B2",
        dashes=(6, 1.5, 1, 1.5),
        takes_votes=True,
        options={"start": ("grid", "exact")},
    ),
    Method(
        "adds",
        "ADDS",
        counts="aa546cfcf47d7552",
        colour="#D55E00",
        takes_votes=True,
        guided=True,
    ),
    Method(
        "adds_oneshot",
        "ADDS w/o unguided denoising",
        counts="4c1af3fe30c10498",
        colour="#009E73",
        dashes=(2.5, 1),
        guided=True,
        contained_in="adds",
    ),
)
"""In the order of the paper's tables."""

OPTIONS = sorted({option for method in METHODS.values() for option in method.options})
"""The names of all methods' options."""

DATASETS = _by_name(
    Dataset(
        "imagenet",
        "ImageNet",
        archive="ILSVRC2012_img_val.tar",
        hint="ImageNet needs an account: get ILSVRC2012_img_val.tar at image-net.org and set dataset.source to it, or "
        "to a folder with its images.",
    ),
    Dataset(
        "cifar10",
        "CIFAR-10",
        archive="cifar-10-binary.tar.gz",
        hint="Set dataset.source to your own copy of cifar-10-binary.tar.gz.",
    ),
    Dataset("digits", "scikit-learn's handwritten digits", needs_source=False),
    Dataset("files", "images of your own"),
)

CLASSIFIERS = _by_name(
    ClassifierKind("timm", "a timm model, from the hub or with weights of your own"),
    ClassifierKind("small", "the embedded experiment's small network", trainable=True),
    ClassifierKind("python", "a network that a Python file of your own builds"),
)

BOUNDS = _by_name(
    Bound("cohen", "the paper's", radii="432b01995b92613d"),
    Bound("pair", "ours", radii="cab3e24e54936bd6"),
)

LABEL = "label"
"""What stands for a bound where a run asks about labels only: the certificate is `adds.certificates.label`'s."""


def title(method: str, votes: int) -> str:
    """Return how a variant is called in tables and figures: the paper's name, with its votes where several."""
    name = METHODS[method].title
    return name if votes == 1 else f"{name}, {votes} votes"


def in_order(variants: Iterable[tuple[str, int]]) -> list[Variant]:
    """Sort as the paper's tables do: by method, then by votes."""
    order = list(METHODS)
    distinct = {Variant(str(method), int(votes)) for method, votes in variants}
    return sorted(distinct, key=lambda variant: (order.index(variant.method), variant.votes))
