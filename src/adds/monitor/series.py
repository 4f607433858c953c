"""Run a series of experiments that differ in a few keys, and compare them: a sweep of a scale, an ablation.

    python -m adds.monitor.series config/sweep.yaml --cores all

runs every experiment of the file by the workflow, to its tables; what follows the file is Snakemake's. Samples
that are on record aren't drawn again, so a series that was interrupted goes on, and one with another entry draws that
one's only. It leaves results/{series}/comparison.{csv,md,png,pdf}, and claims.{csv,md,tex,html}: the paper's claims
that are about what was changed, where ``about`` isn't null.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from adds.results.claims.claim import read_claims
from adds.results.claims.measures import Measured, measure
from adds.results.claims.show import write_claims
from adds.results.claims.verdict import evaluate
from adds.results.figures.style import look, save
from adds.results.series import caption, comparison, draw, markdown, side_by_side

KEYS = {"series", "about", "after", "reference", "common", "experiments"}

TARGETS = ("provenance.json", "tables/certified_accuracy.md", "tables/true_class_probability.md")
"""What is made of every experiment: certificates and counts come with it."""


class SeriesError(ValueError):
    """A file that is no series; the message names the key."""


def read_series(path: Path) -> dict[str, Any]:
    """Read the file: ``after`` configuration files, ``common`` keys and those of each of the ``experiments``."""
    found = yaml.safe_load(path.read_text())
    if not isinstance(found, dict) or set(found) != KEYS:
        given = sorted(found) if isinstance(found, dict) else []
        raise SeriesError(f"{path} must have the keys {', '.join(sorted(KEYS))}; it has {', '.join(given) or 'none'}")
    for key in ("common", "experiments"):
        if not isinstance(found[key], dict):
            raise SeriesError(f"{key} must be a section of keys")
    for name, changes in found["experiments"].items():
        if not isinstance(changes, dict):
            raise SeriesError(f"experiments.{name} must be the keys that differ, or {{}} where none does")
    names = [found["series"], *found["experiments"]]
    wrong = [name for name in names if not re.fullmatch(r"[A-Za-z0-9_-]+", str(name))]
    if wrong:
        raise SeriesError(f"{wrong[0]!r} can't name an experiment: letters, digits, _ and - can")
    if found["reference"] not in found["experiments"]:
        raise SeriesError(f"reference is {found['reference']!r}: it must be one of {', '.join(found['experiments'])}")
    return found


def run(series: Mapping[str, Any], snakemake: list[str]) -> dict[str, Path]:
    """Run the experiments one after the other; return where their results are."""
    results = {}
    for name, changes in series["experiments"].items():
        experiment = f"{series['series']}_{name}"
        own = Path("results", series["series"], f"{name}.yaml")
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(yaml.safe_dump({**changes, "experiment": experiment}))
        common = own.with_name("common.yaml")
        common.write_text(yaml.safe_dump(series["common"]))
        results[name] = Path("results", experiment)
        targets = [str(results[name] / target) for target in TARGETS]
        files = ["--configfile", *series["after"], str(common), str(own)]
        print(f"{experiment}: {', '.join(targets)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "snakemake", *targets, *snakemake, *files], check=True)
    return results


def measures_of(results: Mapping[str, Path]) -> pd.DataFrame:
    """Return the claims' measures of every image in every experiment, and what was changed, as counts record it."""
    parts = []
    for folder in results.values():
        counts, certified = (pd.read_parquet(folder / f"{name}.parquet") for name in ("counts", "certificates"))
        parts.append(measure(counts, certified, starts={}).values)  # no claim about a series asks where a chain starts
    return pd.concat(parts, ignore_index=True)


def compare(series: Mapping[str, Any], results: Mapping[str, Path], claims: Path) -> str:
    """Write table, figure and verdicts; return the table."""
    stem = Path("results", series["series"], "comparison")
    table = comparison(side_by_side(results), series["reference"])
    text = markdown(table, series["reference"])
    stem.with_suffix(".md").write_text(text)
    with look({"font_size": 8, "dpi": 200}):
        save(draw(table), table, stem, caption(table, series["reference"]))
    if series["about"]:
        about = [claim for claim in read_claims(claims) if any(part.table == series["about"] for part in claim.parts)]
        measured = measures_of(results)
        verdicts, contrasts = evaluate(about, Measured(measured), tables={series["about"]: measured})
        write_claims(verdicts, contrasts, stem=stem.with_name("claims"))
    return text


def main() -> None:
    """Run a series of experiments and compare them."""
    usage = "python -m adds.monitor.series FILE [--claims CLAIMS] [Snakemake's options, as --cores all]"
    parser = argparse.ArgumentParser(usage=usage, description=main.__doc__)
    parser.add_argument("file", type=Path, help="the series, as config/sweep.yaml")
    parser.add_argument("--claims", type=Path, default=Path("config/claims.yaml"), help="the claims to be tested")
    arguments, snakemake = parser.parse_known_args()
    try:
        series = read_series(arguments.file)
    except (OSError, yaml.YAMLError, SeriesError) as error:
        parser.exit(1, f"{error}\n")
    dry = {"-n", "--dry-run", "--dryrun"} & set(snakemake)
    try:
        results = run(series, snakemake)
    except subprocess.CalledProcessError as error:
        parser.exit(error.returncode, "one of the experiments failed: Snakemake said why; the same command goes on\n")
    if dry:
        parser.exit(0, "a dry run: nothing was compared\n")
    print(compare(series, results, arguments.claims))


if __name__ == "__main__":
    main()
