"""Who has looked at which samples: every way in which they were certified is noted beside the ledgers.

A certificate holds at its level if n and the bound were chosen before its samples were seen. Whoever certifies the same
samples again with another n or by another bound, and keeps what looks better, spends alpha again. Nothing can forbid
that, so it is written down: a file in `results/ledger/looks/` for every look, which stays as long as the samples do,
whatever becomes of the experiment's own results. In sequential mode n alone may be raised: bounds hold for all n at
once, except where the questions are about labels.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from adds.experiment import LEDGERS, short_hash
from adds.registry import LABEL

HOW = ("mode", "n0", "n", "alpha", "bound", "questions")
"""What of a look is chosen."""


def look_of(choices: Mapping[str, Any], certified: pd.DataFrame) -> dict[str, Any]:
    """Return how samples are looked at (`Experiment.look`), and which they are: of which identities and images."""
    return {
        **choices,
        "identities": sorted(set(certified["identity"])),
        "images": sorted({int(number) for number in certified["number"]}),
    }


def note(look: dict[str, Any], store: Path | str = LEDGERS) -> None:
    """Write a look down, with the date of its first time."""
    path = Path(store) / "looks" / f"{short_hash(look)}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        dated = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **look}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(dated) + "\n")
        part.replace(path)


def others(look: dict[str, Any], store: Path | str = LEDGERS) -> list[dict[str, Any]]:
    """Return the other ways in which samples of a look were certified, each once, the first first.

    Those that spend no alpha again are no other way: the same certificates, of some of the images, or from more samples
    under bounds that hold for all n at once.
    """
    noted = [json.loads(path.read_text()) for path in (Path(store) / "looks").glob("*.json")]
    found: dict[str, dict[str, Any]] = {}
    for other in sorted(noted, key=lambda entry: str(entry["date"])):
        shared = all(set(other[key]) & set(look[key]) for key in ("identities", "images"))
        if shared and _spending(other) != _spending(look):
            told = {key: other[key] for key in ("date", "experiment", *HOW) if key in other}
            found.setdefault(short_hash(_spending(other)), told)
    return list(found.values())


def _spending(look: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices that spend alpha again where another look differs in them."""
    free = {"n"} if look["mode"] == "sequential" and look["bound"] != LABEL else set()
    return {key: look[key] for key in HOW if key in look and key not in free}
