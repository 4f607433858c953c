# Where this workflow is: in a folder, a module's path or an address, of which Snakemake fetches files one by one. What is
# the workflow's own (its library, lists, weights) is taken from there, and not from the current folder.
import importlib.util
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError


def load(name: str):
    """Import a file of the library from where this workflow is, as the package need not be installed here."""
    path = workflow.source_path(f"../../src/adds/{name.replace('.', '/')}.py")
    spec = importlib.util.spec_from_file_location(f"adds.{name}", path)
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name]


ROOT = workflow.current_basedir.join("../..")
IS_FOLDER = "://" not in ROOT.get_path_or_uri(secret_free=True)
"""Whether the workflow is in a folder, or at an address that Snakemake takes single files of text from."""


def prefer_own_library() -> None:
    """Import adds from this workflow, whatever is installed."""
    if IS_FOLDER:
        root = os.path.abspath(ROOT.get_path_or_uri(secret_free=True))
        sys.path.insert(0, f"{root}/src")


if workflow.modifier.path_modifier.prefix:
    raise WorkflowError(
        "prefix: this workflow can't be a module with one, because its jobs find files by parameters too, which "
        "Snakemake doesn't prefix. Leave it out: `experiment` names the folder of the results"
    )


def own(name: str) -> str:
    """A file that the configuration names: the user's, or else the workflow's own."""
    if Path(name).exists():
        return name
    if IS_FOLDER:
        path = os.path.normpath(f"{ROOT.get_path_or_uri(secret_free=True)}/{name}")
        return path if os.path.exists(path) else name
    if name.startswith("weights/"):
        return f"{FETCHED}/{name}"  # no text, which is all that Snakemake takes from an address
    try:
        return workflow.source_path(f"../../{name}")
    except WorkflowError:
        return name


FETCHED = "resources/fetched"
"""Where the workflow's own weights are downloaded to, apart from the user's."""


def address_of(wildcards) -> str:
    """Where a file of the workflow's own weights is, if it isn't in a folder."""
    path = f"weights/{wildcards.file}.safetensors"
    return ROOT.join(path).get_path_or_uri(secret_free=True)


if not IS_FOLDER:
    # scripts/bootstrap.py looks for the library where it is itself: in Snakemake's cache.
    workflow.source_path("../../scripts/bootstrap.py")
    for name in (
        Path(workflow.source_path("../../src/adds/MANIFEST")).read_text().split()
    ):
        workflow.source_path(f"../../src/adds/{name}")
