import json
import re
import shutil
import subprocess
from pathlib import Path
from statistics import NormalDist

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

# Raised when the same configuration would give other counts: older counts are then drawn again.
COUNTS_VERSION = 4

GUIDED = ("adds", "adds_oneshot")


def normalise_config() -> None:
    """Write sigmas one way (0.5, never .50), as numbers in the list and as text in the keys."""
    if isinstance(config.get("guidance_scale"), dict):
        config["guidance_scale"] = {
            sigma_text(key): scale for key, scale in config["guidance_scale"].items()
        }


def sigma_text(sigma) -> str:
    try:
        return str(float(sigma))
    except ValueError:
        raise WorkflowError(
            f"guidance_scale has the key {sigma!r}: keys must be sigmas, as in {{'0.5': 0.8}}"
        )


def check_config() -> None:
    """Refuse what the schema can't see: keys that contradict each other."""
    methods = active_methods()
    if not methods:
        raise WorkflowError(
            "methods: every method is null; at least one must have votes"
        )
    if any(method in GUIDED for method in methods):
        for sigma in config["sigmas"]:
            if sigma_text(sigma) not in config["guidance_scale"]:
                raise WorkflowError(
                    f"guidance_scale has no entry for sigma {sigma}: ADDS needs one for each of sigmas, "
                    f'for example guidance_scale: {{"{sigma_text(sigma)}": 0.8}}'
                )
    own = {"imagenet": "list", "cifar10": "stride"}.get(config["dataset"]["name"])
    if own and own not in config["dataset"]:
        raise WorkflowError(
            f"dataset.{own} is missing: dataset.name {config['dataset']['name']} needs it"
        )
    known = available_images()
    if config["dataset"]["images"] > known:
        raise WorkflowError(
            f"dataset.images is {config['dataset']['images']}: this data set has {known}"
        )
    if not figure_votes():
        raise WorkflowError(
            f"figures.votes is {config['figures']['votes']}: no method takes so many votes"
        )
    diffusion, sampling = config["diffusion"], config["sampling"]
    if diffusion["timesteps"] % diffusion["steps"]:
        raise WorkflowError(
            f"diffusion.steps is {diffusion['steps']}: it must divide diffusion.timesteps, {diffusion['timesteps']}"
        )
    least = least_n(sampling)
    if sampling["n"] < least:
        raise WorkflowError(
            f"sampling.n is {sampling['n']}: with sampling.alpha = {sampling['alpha']} even {sampling['n']} "
            f"of {sampling['n']} samples can't certify anything; n must be at least {least}"
        )
    if sampling["mode"] == "sequential" and sampling["alpha"] > 0.3:
        raise WorkflowError(
            f"sampling.alpha is {sampling['alpha']}: sequential sampling needs at most 0.3"
        )
    if sampling["mode"] == "sequential" and sampling["stop"]["rule"] == "radii":
        p_most = (sampling["alpha"] / 2) ** (1 / sampling["n"])
        most = max(config["sigmas"]) * NormalDist().inv_cdf(p_most)
        if min(sampling["stop"]["radii"]) > most:
            raise WorkflowError(
                f"sampling.stop.radii is {sampling['stop']['radii']}: with n = {sampling['n']} and alpha = "
                f"{sampling['alpha']} no radius above {most:.3f} can be certified at any of sigmas"
            )
    if (diffusion["source"] == "train") != (config["dataset"]["name"] == "digits"):
        raise WorkflowError(
            "diffusion.source: only the digits' models are trained by the workflow; "
            "use source: train with dataset.name: digits, and source: download otherwise"
        )
    if diffusion["source"] == "train":
        for section in ("diffusion", "classifier"):
            if "training" not in config[section]:
                raise WorkflowError(
                    f"{section}.training is missing: source: train needs steps, batch_size, learning_rate"
                )
    if (config["classifier"]["kind"] == "small") != (
        config["dataset"]["name"] == "digits"
    ):
        raise WorkflowError(
            "classifier.kind: 'small' goes with dataset.name: digits, 'timm' with the others"
        )


def available_images() -> int:
    """How many images the data set has: the digits' test set, every so many-th of CIFAR-10's, or the list's rows."""
    if config["dataset"]["name"] == "digits":
        return 400
    if config["dataset"]["name"] == "cifar10":
        return -(-10_000 // config["dataset"]["stride"])
    return len(Path(config["dataset"]["list"]).read_text().splitlines()) - 1


def least_n(sampling: dict) -> int:
    """The smallest n for which n of n samples can certify something, by the weaker of the two bounds.

    Fixed: (alpha / 2)^(1/n) > 1/2. Sequential: the evidence 2^(n + 1) / (n + 1) reaches 2 / alpha.
    """
    n = 1
    if sampling["mode"] == "fixed":
        while (sampling["alpha"] / 2) ** (1 / n) <= 0.5:
            n += 1
    else:
        while (2 ** (n + 1) - 1) / (n + 1) <= 2 / sampling["alpha"]:
            n += 1
    return n


def active_methods() -> dict:
    return {name: settings for name, settings in config["methods"].items() if settings}


def settings() -> list[tuple[str, str, int]]:
    """All (method, sigma, votes) of the experiment."""
    return [
        (method, sigma_text(sigma), votes)
        for method, own in active_methods().items()
        for sigma in config["sigmas"]
        for votes in own["votes"]
    ]


def shards() -> list[str]:
    """Shards are numbered ranges of positions in images.csv: more images only add shards at the end."""
    count = -(-config["dataset"]["images"] // config["images_per_job"])
    return [f"{number:05d}" for number in range(count)]


def positions(shard: str) -> list[int]:
    """First position of a shard, and the one after its last."""
    first = int(shard) * config["images_per_job"]
    return [first, min(first + config["images_per_job"], config["dataset"]["images"])]


def results_folder() -> str:
    """Where results go; partial ones are kept apart, so that they are never mistaken for whole ones."""
    parts = [config["experiment"]] + (["partial"] if config["partial"] else [])
    return str(Path("results", *parts))


def all_counts(wildcards=None) -> list[str]:
    """The counts of all jobs; where partial results are asked for, those that are there."""
    counts = [
        f"counts/{method}/sigma{sigma}/votes{votes}/{shard}.parquet"
        for method, sigma, votes in settings()
        for shard in shards()
    ]
    if not config["partial"]:
        return [f"<results>/{path}" for path in counts]
    # As they are, wherever they come from: <results> is another folder here, so no job is run for them.
    results = Path("results") / config["experiment"]
    there = [str(results / path) for path in counts if (results / path).exists()]
    if not there:
        raise WorkflowError(f"partial is true, but {results} has no counts yet")
    return there


def write_plan() -> None:
    """Leave what the run is going to do where `python -m adds.status` finds it."""
    plan = {
        "experiment": config["experiment"],
        "settings": settings(),
        "leaders": leaders(),
        "shards": {shard: len(range(*positions(shard))) for shard in shards()},
        **{key: config["sampling"][key] for key in ("mode", "n0", "n")},
    }
    path = Path("results") / config["experiment"] / "plan.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plan) + "\n")


def images_source(wildcards) -> list[str]:
    """Where the images come from: nothing for the digits, else a local copy or the downloaded archive."""
    if config["dataset"]["name"] == "digits":
        return []
    return [config["dataset"].get("source") or f"<models>/{archive()}"]


def archive() -> str:
    """The file that the data set's images come in."""
    cifar10 = config["dataset"]["name"] == "cifar10"
    return "cifar-10-binary.tar.gz" if cifar10 else "ILSVRC2012_img_val.tar"


def prepared_images() -> dict:
    """The part of the dataset section that says which images there are."""
    keys = ("name", "stride") if config["dataset"]["name"] == "cifar10" else ("name",)
    return {key: config["dataset"][key] for key in keys}


def image_lists() -> list[str]:
    """ImageNet's images that are used, and its classes."""
    if config["dataset"]["name"] != "imagenet":
        return []
    return [config["dataset"]["list"], "config/imagenet_classes.csv"]


def model_settings(section: str) -> dict:
    """The part of a model's section that changes what it computes."""
    return {
        key: value
        for key, value in config[section].items()
        if key
        not in (
            "batch_size",
            "training",
            "source",
            "checkpoint",
            "download",
            "revision",
        )
    }


def diffusion_settings(method: str) -> dict:
    """The part of the diffusion section that matters to a method: to RS, what the noise is drawn for."""
    settings = model_settings("diffusion")
    if method != "rs":
        return settings
    shape = {key: settings["unet"][key] for key in ("image_size", "in_channels")}
    return {"timesteps": settings["timesteps"], "unet": shape}


def identity(method: str, sigma: str, votes: int) -> dict:
    """Everything in the configuration that determines a sample's prediction, and nothing else."""
    own = {"method": method, "sigma": float(sigma), "votes": int(votes)}
    if method in GUIDED:
        own["guidance_scale"] = config["guidance_scale"][sigma]
    if method == "densepure":
        own["start"] = config["methods"]["densepure"]["start"]
    return {
        **own,
        "seed": config["seed"],
        "dataset": config["dataset"]["name"],
        "diffusion": diffusion_settings(method),
        "classifier": model_settings("classifier"),
        "counts_version": COUNTS_VERSION,
    }


def leader(method: str) -> tuple[str, int]:
    """The member of a family whose samples contain all others': it runs first, they read its ledger."""
    methods = active_methods()
    family = "adds" if method == "adds_oneshot" and "adds" in methods else method
    return family, max(methods[family]["votes"])


def leader_counts(wildcards) -> list[str]:
    """What a certify job waits for: the counts of its family's leader, unless it is the leader."""
    family, votes = leader(wildcards.method)
    if (family, votes) == (wildcards.method, int(wildcards.votes)):
        return []
    return [
        f"<results>/counts/{family}/sigma{wildcards.sigma}/votes{votes}/{wildcards.shard}.parquet"
    ]


def diffusion_model(wildcards) -> dict[str, str]:
    """The diffusion model, where the method has one, and what was compiled of it, where that is asked for.

    That it was compiled again is no reason to sample again.
    """
    if wildcards.method == "rs":
        return {}
    files = {
        "diffusion": "<models>/diffusion.pt",
        "diffusion_description": "<models>/diffusion.json",
    }
    if config["diffusion"]["compile"]:
        files["compiled"] = ancient("<models>/compiled.pt2")
        files["compiled_description"] = ancient("<models>/compiled.json")
    return files


def on_small_networks() -> bool:
    return config["dataset"]["name"] == "digits"


def sampling_settings() -> dict:
    """The part of the sampling section that changes how many samples are drawn."""
    keys = {
        "fixed": ("mode", "n0", "n"),
        "sequential": ("mode", "n0", "n", "stop", "alpha", "chunk_size"),
    }
    own = {key: config["sampling"][key] for key in keys[config["sampling"]["mode"]]}
    return {"alpha": None, **own}


FIGURE_FORMATS = ("pdf", "png", "csv")
TABLE_FORMATS = ("csv", "md", "tex")


def voting_both() -> bool:
    """The vote distribution compares one vote with several."""
    votes = (active_methods().get("adds") or {}).get("votes", [])
    return 1 in votes and max(votes) > 1


def many_votes() -> int:
    return max(active_methods()["adds"]["votes"])


def figure_votes() -> list[int]:
    """The numbers of votes that have a figure: those that some method takes."""
    taken = {votes for own in active_methods().values() for votes in own["votes"]}
    return [votes for votes in config["figures"]["votes"] if votes in taken]


def figure_names() -> list[str]:
    names = [f"certified_accuracy_votes{votes}" for votes in figure_votes()] + [
        "runtime",
        "bounds",
        "samples_needed",
    ]
    names += ["vote_distribution"] if voting_both() else []
    names += [f"denoised_sigma{sigma_text(sigma)}" for sigma in config["sigmas"]]
    names += ["budget"] if any(method in GUIDED for method in active_methods()) else []
    return names


def all_figures() -> list[str]:
    """The figures of a whole run; partial results are shown in tables only."""
    if config["partial"]:
        return []
    return [
        f"<results>/figures/{name}.{suffix}"
        for name in figure_names()
        for suffix in FIGURE_FORMATS
    ]


def all_tables() -> list[str]:
    names = [
        "certified_accuracy",
        "clean_accuracy",
        "true_class_probability",
        "bounds",
    ]
    names += [] if config["partial"] else ["saving"]
    return [
        f"<results>/tables/{name}.{suffix}"
        for name in names
        for suffix in TABLE_FORMATS
    ]


def training_pictures() -> list[str]:
    if config["diffusion"]["source"] != "train" or config["partial"]:
        return []
    return ["<models>/samples.png", "<models>/loss.png"]


def has_gpu() -> bool:
    """Whether a driver shows a GPU; asking torch would cost every start of Snakemake seconds."""
    for lister in (["nvidia-smi", "-L"], ["rocm-smi", "--showid"]):
        if shutil.which(lister[0]):
            return (
                "GPU" in subprocess.run(lister, capture_output=True, text=True).stdout
            )
    return False


def needs_gpu() -> bool:
    """Whether this machine itself would have to run jobs that want a GPU."""
    wanted = any(job.resources.get("gpu") for job in workflow.dag.needrun_jobs())
    return workflow.local_exec and wanted


def require_gpu() -> None:
    """Stop before any job where a GPU is needed and this machine has none."""
    if not needs_gpu() or has_gpu():
        return
    raise WorkflowError(
        f"this machine has no GPU, and {config['experiment']} needs one: {cost()} (snakemake estimate tells more). "
        "Run it on a GPU machine or through a cluster executor; try the embedded experiment with --configfile "
        "config/digits.yaml; or set device: cpu if you mean it."
    )


def estimated_settings() -> list[tuple[str, float, int]]:
    return [(method, float(sigma), votes) for method, sigma, votes in settings()]


def leaders() -> list[tuple[str, int]]:
    return sorted({leader(method) for method in active_methods()})


def cost() -> str:
    try:
        from adds.estimate import estimate
    except ImportError:  # Snakemake may live in an environment of its own
        return "many GPU-hours"
    hours = estimate(config, estimated_settings(), leaders())["hours"].sum()
    return f"about {hours:,.0f} {config['estimate']['device']}-hours"


def time_in_networks() -> list[str]:
    """What the certification jobs' logs and benchmarks tell: which part of their time the networks took."""
    experiment = config["experiment"]
    logs = Path("logs", experiment, "certify").glob("**/*.log")
    told = [
        re.search(r"networks took ([\d.]+) of", log.read_text(errors="replace"))
        for log in logs
    ]
    networks = sum(float(found[1]) for found in told if found)
    measured = Path("benchmarks", experiment, "certify").glob("**/*.tsv")
    rows = [row for path in measured for row in path.read_text().splitlines()[1:]]
    total = sum(float(row.split("\t")[0]) for row in rows)
    if not networks or total < networks:  # on GPUs it can't be told
        return []
    return [
        f"Networks took {networks:,.0f} of the certification jobs' {total:,.0f} s; "
        f"{100 * (1 - networks / total):.0f}% went elsewhere (start-up, noise, bookkeeping)."
    ]


def summary() -> str:
    """What a finished run tells in the terminal: the tables, and where everything is."""
    folder = Path(results_folder())
    if not (folder / "tables").exists():
        return ""
    lines = [""]
    for name in ("certified_accuracy", "clean_accuracy"):
        table = folder / "tables" / f"{name}.md"
        if table.exists():
            lines += [
                f"{name.replace('_', ' ').capitalize()} (%)",
                "",
                table.read_text(),
            ]
    lines += time_in_networks()
    lines.append(f"Results are in {folder}/: certificates.csv, figures/, tables/")
    return "\n".join(lines)


def figure_style(name: str):
    """Style and content keys of a figure, so that a change of one reruns that figure only."""
    own = {key: config["figures"][key] for key in ("font_size", "dpi")}
    return own | ({name: config["figures"][name]} if name in config["figures"] else {})


normalise_config()
validate(config, schema="../schemas/config.schema.yaml", set_default=False)
check_config()


wildcard_constraints:
    method="|".join(active_methods()),
    sigma=r"[0-9.e-]+",
    votes=r"\d+",
    shard=r"\d{5}",
