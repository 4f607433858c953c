"""What `config/claims.yaml` says: claims, their parts, and the contrasts that a run's sigmas make of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from adds.registry import Variant, title

SIGMAS = ("each", "smallest", "larger", "largest", "across")
TESTS = ("more", "less", "within", "not_less", "never")
POSSIBLE = "becomes_wrong"
AMONG = {
    "right": "both right",
    "easy": "easy images",
    "hard": "hard images",
    POSSIBLE: "images that become wrong",
}


@dataclass(frozen=True)
class Part:
    """One kind of comparison: ``of`` against ``than``, at some sigmas; `config/claims.yaml` explains the fields."""

    measure: str
    test: str
    sigmas: str
    of: Sequence[Variant]
    than: Sequence[Variant | None]
    margin: float
    among: str | None = None
    some: bool = False
    against: str | None = None
    table: str | None = None
    slope: str | None = None
    option: Mapping[str, Sequence[str]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for value, choices in ((self.test, TESTS), (self.sigmas, SIGMAS), (self.among, (None, *AMONG))):
            if value not in choices:
                raise ValueError(f"{value!r} is none of {', '.join(map(str, choices))}")
        if self.test in ("within", "not_less") and (self.sigmas == "across" or self.slope):
            raise ValueError(f"test: {self.test} is for values, not for slopes: how large these can be isn't known")
        if (self.test == "never") != (self.among == POSSIBLE):
            raise ValueError(f"test: never, and no other test, is among: {POSSIBLE}, without which it can't happen")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    name: str
    text: str
    where: str
    family: str
    paper: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Contrast:
    """One comparison of two settings at one sigma, or across them; ``needs`` says why it can't be made."""

    part: Part
    of: Variant
    than: Variant | None
    sigma: float | None
    needs: str = ""

    @property
    def words(self) -> str:
        """Say what is compared."""
        one = title(*self.of)
        other = title(*self.than) if self.than else "nothing"
        if self.part.option:
            [(name, values)] = self.part.option.items()
            one, other = (f"{title(*self.of)}, {name} {value}" for value in values)
        if self.part.against:
            return f"{one} instead of {other}: {_spaced(self.part.measure)} or {_spaced(self.part.against)}"
        among = f", {AMONG[self.part.among]}" if self.part.among else ""
        over = f" per unit of {_spaced(self.part.slope)}" if self.part.slope else ""
        return f"{one} - {other}{over}{among}" if self.than else f"{one}{over}{among}"


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def read_claims(file: Path | str) -> list[Claim]:
    """Read the claims."""
    given = yaml.safe_load(Path(file).read_text())
    settings = {name: Variant(*found) for name, found in given["settings"].items()}
    return [_claim(entry, settings, given["margin"]) for entry in given["claims"]]


def _claim(entry: Mapping[str, Any], settings: Mapping[str, Variant], margin: float) -> Claim:
    parts = []
    for part in entry["parts"]:
        of = [settings[name] for name in part["of"]]
        than: Sequence[Variant | None] = [None]
        if part["than"] == "rivals":
            than = [variant for variant in settings.values() if variant not in of]
        elif part["than"] is not None:
            than = [settings[name] for name in part["than"]]
        parts.append(Part(**{"margin": margin, **part, "of": of, "than": than}))
    return Claim(**{**entry, "parts": parts})


def contrasts(part: Part, sigmas: Sequence[float]) -> Iterator[Contrast]:
    """Yield a part's contrasts at the sigmas of a run; what speaks of several sigmas needs two."""
    known: dict[str, Sequence[float | None]] = {
        "each": sigmas,
        "smallest": sigmas[:1],
        "larger": sigmas[1:],
        "largest": sigmas[-1:],
        "across": [None],
    }
    chosen = known[part.sigmas]
    needs = ""
    if len(sigmas) < 2 and part.sigmas != "each":
        chosen, needs = [None], "two sigmas"
    for sigma in chosen:
        for of in part.of:
            for than in part.than:
                yield Contrast(part, of, than, sigma, needs)
