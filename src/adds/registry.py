"""The menu: one record for every method, data set, kind of classifier and bound.

A new one is a record here and, but for bounds, a module of the same name:

    METHODS      adds/methods/<name>.py             vote(pipeline, query, release), work(schedule, grid, query)
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

Network = Literal["diffusion", "classifier", "noised", "denoised", "kernel", "radius_kernel"]
"""The networks of the workflow. Which of them a method reads says what its jobs wait for."""

READERS: tuple[Network, ...] = ("noised", "denoised", "kernel", "radius_kernel")
"""Networks that are made for noise of one sigma: classifiers trained on noised images and on images denoised in one
step, and Bayes' rule with the training images as the prior, as they are or weighted so as to aim at the radius."""

KERNELS: tuple[Network, ...] = ("kernel", "radius_kernel")
"""Readers that are fitted to a data set's training images and have no weights to give."""

ROUNDING = {"cuda": 2}
"""Raised when the diffusion model rounds elsewhere on such a device, so that older and newer samples aren't mixed."""

Origin = Literal["paper", "yardstick", "ours"]
"""Whose a method is: the paper's comparison, what the paper's comparison lacks, or our own."""


PAPER_IMAGES, PAPER_N0, PAPER_N = 250, 1_000, 10_000
"""The paper's images, and its samples of each to select and to estimate."""


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
    marker: str = "."
    dashes: tuple[float, ...] = ()
    origin: Origin = "paper"
    takes_votes: bool = False
    votes_are: str = "votes"
    """What several of them are called."""
    guided: bool = False
    """Whether it needs a guidance scale for every sigma."""
    sees_image: bool = False
    """Whether it is given the image, which a privacy filter guards then, and not only a release of it."""
    networks: tuple[Network, ...] = ("diffusion", "classifier")
    contained_in: str | None = None
    """The method whose samples hold this one's, so that they need not be drawn again."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What can be configured beside votes, each with its values; the first is the default."""
    asks_readers: bool = False
    """Whether it asks other methods, which the configuration lists under ``readers``, with their ``weights``."""
    is_reader: bool = False
    """Whether such a method may ask it: its module has ``posterior``."""


@dataclass(frozen=True)
class Dataset:
    """A data set: a list of images in the configuration, and a source that their pixels are read from."""

    name: str
    title: str
    columns: tuple[str, ...] = ("number", "label")
    """What its lists must have of every image."""
    archive: str | None = None
    """The file that it is downloaded as, or the folder of several."""
    hint: str = ""
    """What to do where the download isn't allowed."""
    needs_source: bool = True
    trains: bool = False
    """Whether its module has ``training``: images, apart from those of any list, that networks can be trained on."""


@dataclass(frozen=True)
class ClassifierKind:
    """A kind of classifier; ``trainable`` ones the workflow can train itself."""

    name: str
    title: str
    trainable: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)
    """Keys of a section that gives one, each with what it is for people."""


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
        "RS, clean classifier",
        counts="8188bfe3c4e528bd",
        colour="#7f7f7f",
        marker="x",
        dashes=(1, 1),
        origin="yardstick",
        networks=("classifier",),
    ),
    Method(
        "carlini",
        "Carlini et al.",
        counts="41a0c0e176470df5",
        colour="#000000",
        marker="s",
        dashes=(3, 1.2),
        options={"start": ("exact", "grid"), "noise": ("sigma", "timestep")},
    ),
    Method(
        "densepure",
        "DensePure",
        counts="f1ba5e04588c93de",
        colour="#0072B2",
        marker="^",
        dashes=(3, 1, 1, 1),
        takes_votes=True,
        options={"start": ("grid", "exact"), "noise": ("sigma", "timestep")},
    ),
    Method(
        "adds",
        "ADDS",
        counts="027bd9dc357d09b2",
        colour="#D55E00",
        marker="o",
        takes_votes=True,
        guided=True,
        sees_image=True,
    ),
    Method(
        "adds_oneshot",
        "ADDS w/o unguided denoising",
        counts="ce0d33a4d07ccbd1",
        colour="#009E73",
        marker="D",
        dashes=(1, 0.8),
        guided=True,
        sees_image=True,
        contained_in="adds",
    ),
    Method(
        "rs_trained",
        "RS, trained on noise",
        counts="c891da7d075b4ed4",
        colour="#7f7f7f",
        marker="X",
        origin="yardstick",
        networks=("noised",),
        is_reader=True,
    ),
    Method(
        "carlini_trained",
        "Carlini et al., trained on denoised",
        counts="e83ec3a086808453",
        colour="#000000",
        marker="P",
        origin="yardstick",
        networks=("diffusion", "denoised"),
        is_reader=True,
    ),
    Method(
        "bayes",
        "Bayes' rule",
        counts="141dfea7e86369ed",
        colour="#E69F00",
        marker="v",
        dashes=(1, 1),
        origin="yardstick",
        networks=("kernel",),
        is_reader=True,
    ),
    Method(
        "bayes_radius",
        "Bayes' rule for the radius",
        counts="0081ce32674dbc07",
        colour="#E69F00",
        marker="<",
        origin="ours",
        networks=("radius_kernel",),
        is_reader=True,
    ),
    Method(
        "adds_bridge",
        "ADDS",
        counts="c78a326728bf4555",
        colour="#CC79A7",
        marker="h",
        origin="ours",
        takes_votes=True,
        votes_are="guided votes",
        guided=True,
        options={"ending": ("oneshot", "denoised")},
        is_reader=True,
    ),
    Method(
        "consensus",
        "Consensus",
        counts="798e7a7e20a25a94",
        colour="#56B4E9",
        marker="*",
        origin="ours",
        networks=(),
        options={"bridges": ("3", "1", "5", "9")},
        asks_readers=True,
    ),
)
"""In the order of the paper's tables; then those that it lacks, then ours."""

OPTIONS = sorted({option for method in METHODS.values() for option in method.options})
"""The names of all methods' options."""

DATASETS = _by_name(
    Dataset(
        "imagenet",
        "ImageNet",
        columns=("number", "label", "filename"),
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
    Dataset(
        "fashion",
        "Fashion-MNIST",
        archive="files",
        hint="Set dataset.source to a folder with its four IDX files, for instance that of Debian's package "
        "dataset-fashion-mnist.",
        trains=True,
    ),
    Dataset("digits", "scikit-learn's handwritten digits", needs_source=False, trains=True),
    Dataset("files", "images of your own", columns=("file",)),
)

DIFFUSION_HINT = "Set diffusion.weights to a copy of your own, or diffusion.download.urls to a mirror."
"""What to do where the diffusion model can't be downloaded."""

WEIGHTS = {"weights": "a file of weights; or set models.source to train"}

CLASSIFIERS = _by_name(
    ClassifierKind(
        "timm",
        "a timm model, from the hub or with weights of your own",
        needs={"name": "timm's name of the model, or hf-hub:owner/name"},
    ),
    ClassifierKind("small", "the embedded experiment's small network", trainable=True, needs=WEIGHTS),
    ClassifierKind("grey28", "a small network for 28 x 28 grey images", trainable=True, needs=WEIGHTS),
    ClassifierKind(
        "python",
        "a network that a Python file of your own builds",
        needs={"file": "the Python file that builds it"},
    ),
)

BOUNDS = _by_name(
    Bound("cohen", "the paper's bound", radii="432b01995b92613d"),
    Bound("pair", "our bound", radii="5fbe7445e1b2f748"),
)

LABEL = "label"
"""What stands for a bound where a run asks about labels only: the certificate is `adds.certificates.label`'s."""


def title(method: str, votes: int) -> str:
    """Return how a variant is called in tables and figures: its votes where several, and whether it is ours."""
    record = METHODS[method]
    plain = votes == 1 and record.votes_are == "votes"
    of_votes = "" if plain else f", {votes} {record.votes_are if votes > 1 else record.votes_are.removesuffix('s')}"
    return record.title + of_votes + (" (ours)" if record.origin == "ours" else "")


def in_order(variants: Iterable[tuple[str, int]]) -> list[Variant]:
    """Sort as the paper's tables do: by method, then by votes."""
    order = list(METHODS)
    distinct = {Variant(str(method), int(votes)) for method, votes in variants}
    return sorted(distinct, key=lambda variant: (order.index(variant.method), variant.votes))
