"""Running the workflow from the command line, as the tests do."""

import contextlib
import fcntl
import hashlib
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import yaml
from snakemake.cli import main

PROJECT = Path(__file__).parents[1]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")

TINY = {
    "dataset": {"images": 4, "list": "config/digits.csv"},
    "diffusion": {"batch_size": 8, "compile": False},
    "sigmas": [0.5, 1.0],
    "guidance_scale": {"0.5": 0.8, "1.0": 0.8},
    "methods": {
        "rs": None,
        "rs_trained": None,
        "consensus": None,
        "carlini": {"votes": [1]},
        "densepure": {"votes": [1]},
    },
    "sampling": {
        "mode": "fixed",
        "n0": 4,
        "n": 12,
        "alpha": 0.05,
        "chunk_size": 8,
        "stop": {"at_least": 0, "futility": 0.01},
    },
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
    """Run the tiny experiment."""
    words = command(folder, *arguments, **changes)
    if environment is not None:
        return run_in(folder, *words, environment=environment)
    return snakemake(folder, *words[1:])


def snakemake(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Snakemake's own main in a fork, so that it is imported once for all runs."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            _be_snakemake(folder, words, stdout.fileno(), stderr.fileno())
        _, status = os.waitpid(child, 0)
        texts = []
        for stream in (stdout, stderr):
            stream.seek(0)
            texts.append(stream.read().decode())
        return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(status), *texts)


def _be_snakemake(folder: Path, words: Sequence[str], *streams: int) -> NoReturn:
    """Become a Snakemake that writes into two files, and end as it does."""
    code = 1
    try:
        os.chdir(folder)
        for target, stream in zip((1, 2), streams, strict=True):
            os.dup2(stream, target)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))
        main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


CLEAR = "\r\x1b[K"


def run_in_terminal(
    folder: Path, *words: str, until: Callable[[], bool] = lambda: False, columns: int = 100
) -> tuple[int, list[str]]:
    """Run a command in a pseudo-terminal, and press Ctrl-C when it is time; return its status and the lines it left."""
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # where the tests themselves run in the background it is ignored
        os.chdir(folder)
        os.execv(words[0], words)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    written, pressed = b"", False
    with contextlib.suppress(OSError):  # there is nobody left at the other end
        while True:
            if select.select([terminal], [], [], 0.05)[0]:
                written += os.read(terminal, 65536)
            if not pressed and until():
                os.write(terminal, b"\x03")
                pressed = True
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    lines = written.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
    return os.waitstatus_to_exitcode(status), [line.rpartition(CLEAR)[2] for line in lines]


def planned(folder: Path, *targets: str, **changes) -> dict[str, int]:
    """Rules and numbers of jobs that a dry run would run, `all` left out."""
    done = run(folder, "--dry-run", *targets, **changes)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    if "Job stats:" not in output:
        assert "Nothing to be done" in output
        return {}
    table = output.split("Job stats:")[-1]
    jobs = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
    return {name: count for name, count in jobs.items() if name not in ("all", "total")}
