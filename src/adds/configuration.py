"""A configuration as people write it: read as the schema means it, in one form, and what is wrong with it in one line.

Standard library and `adds.registry` only, because Snakemake's own process reads this file where the package need
not be installed.
"""

import csv
import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from math import isfinite
from pathlib import Path
from typing import Any

from adds.registry import DATASETS

EXPLAINED = "config/README.md explains every key"


TYPES = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "a section of keys",
    "null": "null",
}
"""What people call the schema's types."""


class ConfigError(ValueError):
    """A configuration that can't be run: the message names the key, what is wrong with it and what would be right."""


def sigma_text(sigma: object) -> str:
    """Write a sigma one way (0.5, never .50)."""
    return str(float(str(sigma)))


def known(name: str, choices: Iterable[str], key: str) -> None:
    """Refuse a name that isn't one of the choices, and list them."""
    choices = list(choices)
    if name not in choices:
        raise ConfigError(f"{key}: there is no {name!r}{suggestion(name, choices)}; choose from {', '.join(choices)}")


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Say which of the choices was probably meant."""
    close = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    return f", did you mean `{close[0]}`?" if close else ""


def explain(error: Any) -> str:
    """Say in one line what a schema's validator (jsonschema's ValidationError) found.

    The error itself would print the schema and the whole configuration.
    """
    if error.validator == "anyOf":  # a section or null: what is wrong with the section
        return explain(next(cause for cause in error.context if cause.relative_schema_path[0] == 0))
    path = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        allowed = error.schema.get("properties", {})
        unknown = sorted(key for key in error.instance if key not in allowed)[0]
        key = f"{path}.{unknown}" if path else unknown
        return f"{key}: there is no such key{suggestion(unknown, allowed)} ({EXPLAINED})"
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        key = f"{path}.{missing}" if path else missing
        whole = "" if path else "; a module needs all of config/config.yaml"
        return f"{key} is missing ({EXPLAINED}{whole})"
    wanted = {
        "type": lambda value: (
            "it must be " + " or ".join(TYPES[name] for name in ([value] if isinstance(value, str) else value))
        ),
        "enum": lambda value: f"choose from {', '.join(map(str, value))}",
        "minimum": lambda value: f"it must be at least {value}",
        "maximum": lambda value: f"it must be at most {value}",
        "exclusiveMinimum": lambda value: f"it must be above {value}",
        "exclusiveMaximum": lambda value: f"it must be below {value}",
        "minItems": lambda value: f"it needs at least {value}",
        "multipleOf": lambda value: f"it must be a multiple of {value}",
        "uniqueItems": lambda _: "it lists something twice",
    }.get(error.validator)
    wrong = wanted(error.validator_value) if wanted else error.schema.get("description", error.message)
    return f"{path} is {json.dumps(error.instance)}: {wrong} ({EXPLAINED})"


def read_list(path: Path, dataset: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a data set's list, of which every one must have what its reader needs."""
    key = f"dataset.list is {dataset['list']!r}"
    known(dataset["name"], DATASETS, "dataset.name")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
            columns = reader.fieldnames or []
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: it is no CSV file ({error})") from None
    lacking = [column for column in DATASETS[dataset["name"]].columns if column not in columns]
    if lacking:
        written = "; python -m adds.data.files FOLDER writes one" if dataset["name"] == "files" else ""
        raise ConfigError(
            f"{key}: it lacks the column {lacking[0]} that dataset.name {dataset['name']} needs, its first line is "
            f"{','.join(columns)!r}{written}"
        )
    if not rows:
        raise ConfigError(f"{key}: it lists no image")
    for line, row in rows:
        for column in {"number", "label"} & set(columns):
            if not _is_whole(row[column] or "") and (column == "number" or row[column]):
                raise ConfigError(f"{key}: {column} {row[column]!r} in line {line} is not a whole number")
    return [row for _, row in rows]


def accept_words(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return what people typed after --config as the schema means it: Snakemake hands most of it over as text.

    What the schema has another type for than text is read as that, wherever it stands; what can't be read so is left
    for the schema to refuse. ``definitions`` are what the schema's references point to.
    """
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:  # a section or null
        return None if value in NOTHING else accept_words(value, schema["anyOf"][0], definitions)
    if isinstance(value, dict):
        known_keys, others = schema.get("properties", {}), schema.get("additionalProperties")
        other = others if isinstance(others, dict) else {}
        return {key: accept_words(part, known_keys.get(key, other), definitions) for key, part in value.items()}
    if isinstance(value, list):
        return [accept_words(part, schema.get("items", {}), definitions) for part in value]
    types = schema.get("type", "string")
    types = [types] if isinstance(types, str) else types
    if types == ["boolean"]:
        return WORDS.get(str(value).lower(), value)
    if schema.get("type") == "string" and type(value) is int:  # a name of digits
        return str(value)
    if not isinstance(value, str):
        return value
    if "null" in types and value in NOTHING:
        return None
    with suppress(ValueError):
        if "integer" in types:
            return int(value)
        if "number" in types and isfinite(float(value)):
            return float(value)
    return value


WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
"""What people write for a boolean."""
NOTHING = ("null", "~", "")
"""What they write for null."""


def located(config: Mapping[str, Any], find: Callable[[str], str]) -> dict[str, Any]:
    """Return the configuration with the files that it names as ``find`` finds them."""

    def found(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: found(part) for key, part in value.items()}
        return find(value) if isinstance(value, str) else value

    whole = deepcopy(dict(config))
    sections = [whole, *(whole[name] for name in ("dataset", "diffusion", "classifier"))]
    for section in [*sections, *filter(None, whole["readers"].values())]:
        section |= {key: found(section[key]) for key in NAMING_FILES if key in section}
    return whole


NAMING_FILES = ("list", "classes", "weights", "file", "paper_tables")
"""Keys whose text is a file's name; readers name one for each sigma."""


def normalised(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with sigmas written one way and with every optional key."""
    found = deepcopy(dict(config))
    scales = found["guidance_scale"]
    if len({str(key) if not _is_number(key) else sigma_text(key) for key in scales}) < len(scales):
        raise ConfigError(f"guidance_scale has the keys {', '.join(map(str, scales))}: two of them are the same sigma")
    try:
        found["guidance_scale"] = {sigma_text(key): scale for key, scale in scales.items()}
    except ValueError:
        wrong = next(key for key in scales if not _is_number(key))
        raise ConfigError(f"guidance_scale has the key {wrong!r}: keys must be sigmas, as in {{'0.5': 0.8}}") from None
    for section, keys in OPTIONAL.items():
        found[section] = {**dict.fromkeys(keys), **found[section]}
    for reader in filter(None, found["readers"].values()):
        reader["training"] = reader.get("training")
        reader["weights"] = {sigma_text(sigma): file for sigma, file in (reader.get("weights") or {}).items()}
    if found["classifier"]["kind"] == "timm" and not found["classifier"]["revision"]:
        found["classifier"]["revision"] = "main"
    return found


OPTIONAL = {
    "dataset": ("images", "classes", "source", "download"),
    "diffusion": ("weights", "download", "training", "most_error"),
    "classifier": ("name", "revision", "weights", "file", "training", "least_accuracy"),
}
"""Keys that a configuration may leave out, which is the same as null."""


def _is_whole(text: str) -> bool:
    return _is_number(text) and float(text) % 1 == 0


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True
