"""Who has looked at which samples: every way in which they were certified is noted beside the ledgers.

A certificate holds at its level if n and the bound were chosen before its samples were seen. Whoever certifies the same
samples again with another n or by another bound, and keeps what looks better, spends alpha again. Nothing can forbid
that, so it is written down: a file in `results/ledger/looks/` for every look, which stays as long as the samples do,
whatever becomes of the experiment's own results.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from adds.experiment import LEDGERS, Experiment, short_hash

HOW = ("mode", "n0", "n", "alpha", "bound", "questions")
"""What of a look is chosen, and tells it from another at the same samples."""


def look_of(experiment: Experiment, certified: pd.DataFrame) -> dict[str, Any]:
    """Return how an experiment looks at its samples, and which they are: of which identities and images."""
    sampling = experiment.config["sampling"]
    asked = {"questions": sampling["stop"]["questions"]} if sampling["mode"] == "sequential" else {}
    return {
        "experiment": experiment.name,
        **{key: sampling[key] for key in ("mode", "n", "alpha")},
        "n0": experiment.n0,
        "bound": experiment.config["bound"],
        **asked,
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

    Those with the same choices are no other way: the same certificates again, or of some of the images.
    """
    noted = [json.loads(path.read_text()) for path in (Path(store) / "looks").glob("*.json")]
    found: dict[str, dict[str, Any]] = {}
    for other in sorted(noted, key=lambda entry: str(entry["date"])):
        shared = all(set(other[key]) & set(look[key]) for key in ("identities", "images"))
        if shared and _choices(other) != _choices(look):
            told = {**{key: other[key] for key in ("date", "experiment")}, **_choices(other)}
            found.setdefault(short_hash(_choices(other)), told)
    return list(found.values())


def _choices(look: dict[str, Any]) -> dict[str, Any]:
    return {key: look[key] for key in HOW if key in look}
