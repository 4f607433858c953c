"""Running the workflow from the command line, as the tests do."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

PROJECT = Path(__file__).parents[1]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")

TINY = {
    "dataset": {"images": 4},
    "diffusion": {"batch_size": 8, "compile": False},
    "sigmas": [0.5, 1.0],
    "guidance_scale": {"0.5": 0.8, "1.0": 0.8},
    "methods": {"rs": None, "carlini": {"votes": [1]}, "densepure": {"votes": [1]}},
    "sampling": {"n0": 4, "n": 12, "alpha": 0.05, "chunk_size": 8},
    "images_per_job": 2,
    "figures": {"denoised_images": 2, "budget_trajectories": 4, "samples": 0, "dpi": 60},
}


def copy_project(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name in ("Snakefile", "workflow", "scripts", "config", "envs", "profiles", "src", "weights"):
        source = PROJECT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    return folder


def merged(base: dict, changes: dict) -> dict:
    nested = {
        key: merged(base.get(key) or {}, value) if isinstance(value, dict) else value for key, value in changes.items()
    }
    return {**base, **nested}


def command(folder: Path, *arguments: str, **changes) -> list[str]:
    """Return Snakemake's command for the tiny experiment with some changes, which a file of their own holds."""
    text = yaml.safe_dump(merged(TINY, changes))
    overrides = folder / f"tiny-{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml"
    overrides.write_text(text)
    files = ["--configfile", "config/digits.yaml", overrides.name]
    return [str(SNAKEMAKE), "--cores", "2", *arguments, *files]


def run_in(folder: Path, *command, environment=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def run(folder: Path, *arguments: str, environment=None, **changes) -> subprocess.CompletedProcess[str]:
    return run_in(folder, *command(folder, *arguments, **changes), environment=environment)


def planned(folder: Path, *targets: str, **changes) -> dict[str, int]:
    """Rules and numbers of jobs that a dry run would run, `all` left out."""
    done = run(folder, "--dry-run", *targets, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    if "Job stats:" not in output:
        assert "Nothing to be done" in output
        return {}
    table = output.split("Job stats:")[-1]
    jobs = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
    return {name: count for name, count in jobs.items() if name not in ("all", "total")}
