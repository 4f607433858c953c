"""Allowed values and defaults of every key of a configuration, from the schema, the registry and config/config.yaml.

`config/README.md` shows them, and a test compares; ``python -m tests.key_table`` prints what must stand there.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from adds.registry import BOUNDS, CLASSIFIERS, DATASETS, METHODS

PROJECT = Path(__file__).parents[1]
SCHEMA = yaml.safe_load((PROJECT / "workflow/schemas/config.schema.yaml").read_text())
CONFIG = yaml.safe_load((PROJECT / "config/config.yaml").read_text())
CHOICES = {
    "dataset.name": DATASETS,
    "classifier.kind": CLASSIFIERS,
    "readers.*.kind": CLASSIFIERS,
    "bound": [*BOUNDS, "label"],
    "sampling.stop.questions.bound": BOUNDS,
}
"""Keys whose names the registry knows, not the schema."""

NAMES = {"string": "text"}
SHARED = {"download": "*.download", "training": "*.training", "reader": "readers.*"}
"""Parts of the schema that several sections have in common, and how the document names them."""


def keys(schema: Mapping[str, Any] = SCHEMA, prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every key that has a value of its own, with its entry in the schema; shared parts once, under one name."""
    for name, entry in schema.get("properties", {}).items():
        reference = next((part["$ref"] for part in entry.get("anyOf", [entry]) if "$ref" in part), "").split("/")[-1]
        if reference in SHARED:
            continue
        entry = {**SCHEMA["$defs"].get(reference, {}), **entry}
        if "properties" in entry:
            yield from keys(entry, f"{prefix}{name}.")
        elif entry.get("items", {}).get("type") == "object":
            yield from keys(entry["items"], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", entry
    if schema is SCHEMA:
        for reference, shown in SHARED.items():
            yield from keys(SCHEMA["$defs"][reference], f"{shown}.")


def _limits(entry: Mapping[str, Any]) -> str:
    words = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
    told = [f"{word} {entry[limit]}" for limit, word in words.items() if limit in entry]
    told += [f"in steps of {entry['multipleOf']}"] if "multipleOf" in entry else []
    return ", ".join(told)


def allowed(key: str, entry: Mapping[str, Any]) -> str:
    """Say which values a key may have."""
    choices = CHOICES.get(key) or entry.get("enum")
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    types = entry["type"] if isinstance(entry["type"], list) else [entry["type"]]
    told = []
    for kind in types:
        inner = entry.get("items" if kind == "array" else "additionalProperties", {})
        if kind == "null":
            told.append("`null`")
        elif kind == "boolean":
            told.append("`true`, `false`")
        elif kind == "array":
            told.append(f"list of {NAMES.get(inner['type'], inner['type'])}s {_limits(inner)}".strip())
        elif kind == "object":
            by = "name" if key.endswith(".files") else "sigma"
            told.append(f"by {by}: {NAMES.get(inner['type'], inner['type'])} {_limits(inner)}".strip())
        elif kind == "string":
            told.append({"^[A-Za-z0-9_-]+$": "letters, digits, _ and -"}.get(entry.get("pattern", ""), "text"))
        else:
            told.append(f"{kind} {_limits(entry)}".strip())
    return ", or ".join(told)


def default(key: str) -> str:
    """Return a key's value in config/config.yaml as it is written there; "-" where it has none, or several."""
    value: Any = CONFIG
    for part in key.split("."):
        value = value[0] if isinstance(value, list) else value
        if not isinstance(value, dict) or part not in value:
            return "-"
        value = value[part]
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def table() -> dict[str, tuple[str, str]]:
    """Return what is allowed and the default, by key; a method's options with them."""
    found = {key: (allowed(key, entry), default(key)) for key, entry in keys() if key != "methods"}
    found["methods.*.votes"] = (allowed("methods.*.votes", SCHEMA["$defs"]["votes"]), "-")
    for name, method in METHODS.items():
        for option, values in method.options.items():
            found[f"methods.{name}.{option}"] = (", ".join(f"`{value}`" for value in values), f"`{values[0]}`")
        if method.asks_readers:
            readers = ", ".join(f"`{other}`" for other, record in METHODS.items() if record.is_reader)
            found[f"methods.{name}.readers"] = (f"list of {readers}", "-")
            found[f"methods.{name}.weights"] = ("list of numbers above 0", "-")
    return found


if __name__ == "__main__":
    for key, cells in table().items():
        print(f"| `{key}` | {' | '.join(cells)} |")
