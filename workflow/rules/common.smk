# What Snakemake itself has to know: the experiment, what jobs wait for, and whether this machine can run them. What a
# configuration means is src/adds/experiment.py's, which needs nothing but the standard library.
import os
import shutil
import sys
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.utils import validate

registry = load("registry")
configuration = load("configuration")
experiment = load("experiment")
preflight = load("data.preflight")
gpus = load("machine.gpus")


def understood():
    """The experiment that the configuration describes; what is wrong with it is said in one line."""
    schema = yaml.safe_load(
        Path(workflow.source_path("../schemas/config.schema.yaml")).read_text()
    )
    config.update(configuration.accept_words(config, schema, schema["$defs"]))
    try:
        validate(config, schema="../schemas/config.schema.yaml", set_default=False)
        found = experiment.Experiment.from_config(configuration.located(config, own))
        if found.partial:
            found.finished_counts()  # an input function's error would have a traceback
        return found
    except WorkflowError as error:
        raise WorkflowError(configuration.explain(error.__context__)) from None
    except configuration.ConfigError as error:
        raise WorkflowError(str(error)) from None


EXPERIMENT = understood()
NEEDS = EXPERIMENT.needs()


def setting_of(wildcards):
    return EXPERIMENT.setting(wildcards.method, wildcards.sigma, wildcards.votes)


def job_of(wildcards) -> dict:
    return EXPERIMENT.job(setting_of(wildcards), EXPERIMENT.shard(wildcards.shard))


def machine_of(wildcards, threads) -> dict:
    """The settings of the machine. A param that asks for `threads` is no rerun trigger, and these must be none."""
    return {**EXPERIMENT.machine(), "threads": threads}


def identity_of(wildcards) -> str:
    return f"<results>/{EXPERIMENT.identity_file(setting_of(wildcards))}"


def networks_of(wildcards) -> dict[str, str]:
    return EXPERIMENT.network_files(setting_of(wildcards))


def checks_of(wildcards) -> list[str]:
    """What the tests found of a method's networks. Files are named by what is tested: none is ever made anew.

    `ancient` would be no help: Snakemake forgets other reasons to run a job that waits for an ancient file being made.
    """
    networks = EXPERIMENT.checks(setting_of(wildcards))
    return [f"<results>/{EXPERIMENT.check_file(network)}" for network in networks]


def weights_of(wildcards) -> str:
    return f"{EXPERIMENT.folder(wildcards.network)}/weights"


def check_of(wildcards) -> dict:
    return EXPERIMENT.check_of(wildcards.network)


def limit_of(wildcards, threads):
    """As `machine_of`, no rerun trigger."""
    return EXPERIMENT.limit(wildcards.network)


def reader_of(wildcards) -> dict:
    return EXPERIMENT.reader(wildcards.reader, wildcards.sigma)


def reader_sources(wildcards) -> list[str]:
    return EXPERIMENT.reader_sources(wildcards.reader, wildcards.sigma)


def training_source(wildcards) -> list[str]:
    return EXPERIMENT.training_source(reader_of(wildcards))


def leader_counts(wildcards):
    shard = EXPERIMENT.shard(wildcards.shard)
    counts = EXPERIMENT.leader_counts(setting_of(wildcards), shard)
    return f"<results>/{counts}" if counts else []


def gpus_of(wildcards) -> int:
    return EXPERIMENT.needs(setting_of(wildcards))["gpu"]


def asking(resource: str, needs: dict | None = None):
    """What a certification job needs, or others; more for a retry, as schedulers kill jobs that take too much."""
    return (
        lambda wildcards, attempt: attempt
        * (needs or EXPERIMENT.needs(setting_of(wildcards)))[resource]
    )


def all_counts(wildcards) -> list[str]:
    if EXPERIMENT.partial:
        return EXPERIMENT.finished_counts()
    return [f"<results>/{name}" for name in EXPERIMENT.all_counts()]


def require_gpu() -> None:
    """Stop before any job that needs a GPU where there is none, or several without names; the check sees for itself."""
    jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name != "check"]
    wanted = any(job.resources.get("gpu") for job in jobs)
    if not (workflow.local_exec and wanted):
        return
    if gpus.has_gpu():
        if gpu_jobs_at_once() > 1 and not gpus.visible_gpus():
            raise WorkflowError(f"gpu={gpu_jobs_at_once()}: {gpus.no_names()}")
        return
    raise WorkflowError(
        f"this machine has no GPU, and {EXPERIMENT.name} needs one: {cost()} (snakemake estimate tells more). "
        "Run it on a GPU machine or through a cluster executor; try the embedded experiment with --configfile "
        "config/digits.yaml; or set device: cpu if you mean it."
    )


def gpu_jobs_at_once() -> float:
    """As the command line or a profile says; without either there is no limit but that of the cores."""
    limits = workflow.global_resources
    found = limits["gpu"] if "gpu" in limits else workflow.cores
    return getattr(found, "value", found)


def require_files() -> None:
    """Stop before any job where a file isn't there, or one that is to be downloaded has no room or isn't given to us."""
    made = {str(file) for job in workflow.dag.needrun_jobs() for file in job.output}
    files = [preflight.Download(**found) for found in EXPERIMENT.downloads()]
    runs = {job.rule.name for job in workflow.dag.jobs} - {"estimate", "why", "check"}
    try:
        if runs:
            EXPERIMENT.require_files(besides=() if IS_FOLDER else (f"{FETCHED}/",))
        preflight.check_downloads(file for file in files if str(file.target) in made)
    except (configuration.ConfigError, preflight.NoDownloadError) as error:
        raise WorkflowError(str(error)) from None


def cost() -> str:
    prefer_own_library()
    try:
        from adds.monitor.estimate import estimate
    except ImportError:  # Snakemake may live in an environment of its own
        return "many GPU-hours"
    hours = estimate(EXPERIMENT)["hours"].sum()
    most = "up to " if EXPERIMENT.samples()["at_most"] else ""
    return f"{most}about {hours:,.0f} {EXPERIMENT.config['estimate']['device']}-hours"


def show_summary() -> None:
    """Print what a finished run has to tell, which is in a file too; lines that are too long are cut.

    A run that wasn't asked for it has nothing to tell. Where it is watched (`adds.monitor.watch`), whoever shows it prints this in its turn.
    """
    path = Path(EXPERIMENT.results) / "summary.txt"
    if not any(str(path) in map(str, job.output) for job in workflow.dag.jobs):
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    lines = path.read_text().splitlines()
    text = "\n".join(x if len(x) <= width else f"{x[: width - 1]}…" for x in lines)
    if "ADDS_WATCHED" in os.environ:
        logger.info(text, extra={"event": "summary"})
    else:
        print(f"\n{text}")


wildcard_constraints:
    method="|".join(EXPERIMENT.methods),
    sigma=r"[0-9.e-]+",
    votes=r"\d+",
    shard=r"\d{5}",
    identity="[0-9a-f]{16}",
    network="|".join(experiment.LIMITS),
    reader="|".join(registry.READERS),
    recipe="[0-9a-f]{8}",
