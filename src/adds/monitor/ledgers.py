"""Samples on record: which of them a configuration can use, why not the others, and which no experiment uses.

python -m adds.monitor.ledgers             lists ledgers that no experiment in results/ uses
python -m adds.monitor.ledgers --remove    removes them
"""

import argparse
import csv
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adds.experiment import LEDGERS, Experiment, Setting
from adds.models.weights import checksums
from adds.registry import title
from adds.sampling.job import configured
from adds.sampling.ledger import read_header


@dataclass(frozen=True)
class Family:
    """The ledgers of one identity."""

    folder: Path
    identity: Mapping[str, Any]
    samples: int
    size: int

    @property
    def configured(self) -> dict[str, Any]:
        """The part of the identity that comes from a configuration."""
        return configured(self.identity)


Wanted = set[tuple[int, str]]
"""Images, by number and pixels."""


def families(store: Path | str = LEDGERS, wanted: Wanted | None = None) -> list[Family]:
    """Return what is on record, by identity: of all images, or of those that are wanted."""
    found = []
    for folder in sorted(path for path in Path(store).glob("*") if path.is_dir()):
        files = sorted(folder.glob("*.jsonl"))
        headers = [header for header in map(read_header, files) if header]
        if headers:
            samples = sum(_samples(path, wanted) for path in files)
            size = sum(path.stat().st_size for path in folder.iterdir())
            found.append(Family(folder, headers[0]["identity"], samples, size))
    return found


def _samples(path: Path, wanted: Wanted | None) -> int:
    total = 0
    for line in path.read_text(errors="replace").splitlines()[1:]:
        try:
            record = json.loads(line.partition(" ")[2])
            if wanted is None or (record["image"], record["pixels"]) in wanted:
                total += record["samples"]
        except (json.JSONDecodeError, KeyError):  # being written right now, or cut off
            continue
    return total


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield what differs between two identities: the key, the old value and the new one."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield f"{path} {old} (now {new})"


def why(experiment: Experiment, store: Path | str = LEDGERS) -> str:
    """Say for every family and sigma what is on record of an experiment's images, and what keeps it from use."""
    recorded = families(store, _images(experiment))
    per_image = experiment.n0 + experiment.config["sampling"]["n"]
    lines = []
    for setting in experiment.settings():
        if not experiment.leads(setting):
            continue
        identity = json.loads(json.dumps(experiment.identity(setting)))
        models = _models(experiment, setting)
        lines.append(
            f"{title(identity['family'], 1)} at sigma {setting.sigma}: this configuration wants up to "
            f"{experiment.images * per_image:,} samples of {setting.method} with {setting.votes} vote(s)"
        )
        for family in recorded:
            if (family.identity["family"], family.identity["sigma"]) != (identity["family"], identity["sigma"]):
                continue
            differing = list(differences(family.configured, identity))
            differing += list(differences(family.identity["models"], models, "models")) if models else []
            usable = "can be used" if not differing else "other " + "; ".join(differing)
            lines.append(f"  {family.samples:,} samples on record ({family.identity['device']}): {usable}")
    return "\n".join(lines)


def _images(experiment: Experiment) -> Wanted | None:
    """Return the experiment's images, or None as long as they haven't been read."""
    path = Path(experiment.folder("images")) / "images.csv"
    if not path.exists():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))[: experiment.images]
    return {(int(row["number"]), row["pixels"]) for row in rows}


def _models(experiment: Experiment, setting: Setting) -> dict[str, Any]:
    """Return the checksums of the networks that a setting reads, or nothing where they aren't there yet."""
    folders = {name: Path(folder) for name, folder in experiment.folders(setting).items()}
    if not all((folder / "description.json").exists() for folder in folders.values()):
        return {}
    found: dict[str, Any] = json.loads(json.dumps({name: checksums(folder) for name, folder in folders.items()}))
    return found


def unused(results: Path | str = "results") -> list[Family]:
    """Return the ledgers whose configuration is none of those that the experiments' plans hold.

    Whether networks were exchanged since isn't looked at: what might still be of use is kept.
    """
    plans = [json.loads(path.read_text()) for path in Path(results).glob("*/plan.json")]
    used = [setting["identity"] for plan in plans for setting in plan["settings"]]
    return [family for family in families(Path(results) / Path(LEDGERS).name) if family.configured not in used]


def main() -> None:
    """List, or remove, the samples that no experiment in results/ uses."""
    parser = argparse.ArgumentParser(prog="python -m adds.monitor.ledgers", description=main.__doc__)
    parser.add_argument("--remove", action="store_true", help="remove them; without it they are only listed")
    remove = parser.parse_args().remove
    if not list(Path("results").glob("*/plan.json")):
        parser.exit(1, "no results/*/plan.json tells which samples are in use: run this in the workflow's folder\n")
    found = unused()
    for family in found:
        print(f"{family.size / 1e6:10.2f} MB {family.samples:12,} samples  {family.folder}")
        if remove:
            shutil.rmtree(family.folder)
    total = sum(family.size for family in found) / 1e6
    print(f"{len(found)} unused ledgers, {total:.2f} MB{', removed' if remove else ''}")


if __name__ == "__main__":
    main()
