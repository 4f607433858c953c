"""What a configuration means: which jobs there are, what makes each of them, and what must be refused.

Standard library, `adds.registry` and `adds.configuration` only, because Snakemake's own process reads this file where
the package need not be installed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from adds.configuration import EXPLAINED, ConfigError, known, normalised, read_list, sigma_text, suggestion
from adds.registry import (
    BOUNDS,
    CLASSIFIERS,
    DATASETS,
    DIFFUSION_HINT,
    KERNELS,
    LABEL,
    METHODS,
    READERS,
    Network,
    Variant,
)

Model = Literal["images", "compiled"] | Network
"""What stands in a folder of its own under resources/, named by what makes it; readers have one for every sigma."""

LEDGERS = "results/ledger"
"""The store of samples, for all experiments."""

DETAILED, DETAIL_SAMPLES = ("carlini", "adds"), 4
"""The methods whose denoised images are measured for the claims about detail, and samples of every image."""

PAPER_FIGURES = ("pipeline", "runtime", "vote_distribution", "denoised")
"""The paper's figures in its order, beside its curves of certified accuracy."""

FULL_BATCHES, OF_SMALL_NETWORKS = 4, 16
"""How many batches are drawn at once, from several images if chunks are small, so that little of a batch is padding.

More of small networks, whose memory doesn't matter."""

V_TIMESTEPS = 1000
"""Of the process whose v a network may predict (`adds.models.fast_unet`)."""


@dataclass(frozen=True, order=True)
class Setting:
    """A method at a noise level with a number of votes; ``sigma`` as the configuration's text, which names folders."""

    method: str
    sigma: str
    votes: int

    @property
    def variant(self) -> Variant:
        """The method and its votes, whatever the noise."""
        return Variant(self.method, self.votes)

    @property
    def folder(self) -> str:
        """Where results of this setting are kept, below a folder for what they are."""
        return f"{self.method}/sigma{self.sigma}/votes{self.votes}"


@dataclass(frozen=True)
class Shard:
    """The images of one certification job: positions ``first`` to ``end`` - 1 of the list."""

    name: str
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first


def short_hash(value: Any) -> str:
    """Name a value by its content: 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Experiment:
    """A configuration that was understood: everything that the workflow's rules ask for."""

    config: Mapping[str, Any]
    listed: int
    """How many images the data set's list has."""
    files: tuple[str, ...]
    """The images' own files, where the list names them."""
    digests: Mapping[str, str]
    """Checksums of the small files that the configuration names, for what depends on their content."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], root: Path | str = "") -> "Experiment":
        """Understand a configuration that has the schema's form; paths in it are relative to ``root``."""
        config = normalised(config)
        dataset = config["dataset"]
        digests = {}
        for key in ("list", "classes"):
            name = dataset[key]
            if not name:
                continue
            path = Path(root, name)
            if not path.is_file():
                raise ConfigError(f"dataset.{key} is {name!r}: there is no such file")
            digests[key] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        rows = read_list(Path(root, dataset["list"]), dataset)
        files = tuple(f"{dataset['source']}/{row['file']}" for row in rows if row.get("file"))
        experiment = cls(config, len(rows), files, digests)
        experiment.check()
        return experiment

    # What is refused

    def check(self) -> None:
        """Refuse what the schema can't see: names that don't exist, keys that contradict each other."""
        if self.name == Path(LEDGERS).name:
            raise ConfigError(f"experiment is {self.name!r}: {LEDGERS} holds the samples of all experiments")
        self._check_methods()
        self._check_images()
        self._check_models()
        self._check_sampling()

    def _check_methods(self) -> None:
        config = self.config
        for name, settings in config["methods"].items():
            known(name, METHODS, "methods")
            if not settings:
                continue
            method = METHODS[name]
            if settings["votes"] != [1] and not method.takes_votes:
                raise ConfigError(f"methods.{name}.votes is {settings['votes']}: {name} has no votes to take, only [1]")
            keys = ["votes", *method.options, *(["readers", "weights"] if method.asks_readers else [])]
            for option, value in settings.items():
                if option not in keys:
                    raise ConfigError(
                        f"methods.{name}.{option}: there is no such key{suggestion(option, keys)} ({EXPLAINED})"
                    )
                if option in method.options:
                    known(str(value), method.options[option], f"methods.{name}.{option}")
            if method.asks_readers:
                self._check_readers(name, settings)
        if not self.methods:
            raise ConfigError("methods: every method is null; at least one must have votes")
        if self.any_guided:
            for sigma in self.sigmas:
                if sigma not in config["guidance_scale"]:
                    raise ConfigError(
                        f"guidance_scale has no entry for sigma {sigma}: ADDS needs one for each of sigmas, "
                        f'for example guidance_scale: {{"{sigma}": 0.8}}'
                    )
        if not self.figure_votes():
            raise ConfigError(f"figures.votes is {config['figures']['votes']}: no method takes so many votes")

    @staticmethod
    def _check_readers(name: str, settings: Mapping[str, Any]) -> None:
        """Refuse a list of readers that isn't one, or weights that don't fit it."""
        key, readers = f"methods.{name}.readers", settings.get("readers")
        if not isinstance(readers, list) or not readers:
            raise ConfigError(f"{key} is missing: a list of methods, as in [bayes, rs_trained]")
        for reader in readers:
            known(reader, [other for other, method in METHODS.items() if method.is_reader], key)
        if len(set(readers)) < len(readers):
            raise ConfigError(f"{key} is {json.dumps(readers)}: it lists something twice; give it more weight instead")
        weights = settings.get("weights", [1] * len(readers))
        numbers = isinstance(weights, list) and all(type(weight) in (int, float) and weight > 0 for weight in weights)
        if not numbers or len(weights) != len(readers):
            raise ConfigError(
                f"methods.{name}.weights is {json.dumps(weights)}: it needs a number above 0 for each of {key}"
            )

    def _check_images(self) -> None:
        dataset = self.config["dataset"]
        known(dataset["name"], DATASETS, "dataset.name")
        if dataset["images"] is not None and dataset["images"] > self.listed:
            raise ConfigError(
                f"dataset.images is {dataset['images']}: dataset.list, {dataset['list']}, has {self.listed}"
            )
        if DATASETS[dataset["name"]].needs_source and not dataset["source"]:
            if not DATASETS[dataset["name"]].archive:
                raise ConfigError(f"dataset.source is missing: dataset.name {dataset['name']} needs a folder of images")
            if not dataset["download"]:
                raise ConfigError("dataset.download is missing: without dataset.source the archive is downloaded")

    def _check_models(self) -> None:
        config, diffusion, classifier = self.config, self.config["diffusion"], self.config["classifier"]
        known(classifier["kind"], CLASSIFIERS, "classifier.kind")
        if diffusion["timesteps"] % diffusion["steps"]:
            raise ConfigError(
                f"diffusion.steps is {diffusion['steps']}: it must divide diffusion.timesteps, {diffusion['timesteps']}"
            )
        if (diffusion["download"] or {}).get("files"):
            raise ConfigError("diffusion.download.files: only a data set may be several files")
        fits_v = diffusion["timesteps"] == V_TIMESTEPS and not diffusion["rescale_timesteps"]
        if diffusion["unet"].get("predicts_v") and not fits_v:
            raise ConfigError(
                f"diffusion.unet.predicts_v is true: that needs diffusion.timesteps = {V_TIMESTEPS}, not rescaled"
            )
        if self.trains:
            if not DATASETS[config["dataset"]["name"]].trains or not CLASSIFIERS[classifier["kind"]].trainable:
                raise ConfigError(
                    "models.source is train: the workflow trains only the small networks of config/digits.yaml and "
                    "config/fashion.yaml; set models.source to given"
                )
            for section in ("diffusion", "classifier"):
                if not config[section]["training"]:
                    raise ConfigError(
                        f"{section}.training is missing: models.source: train needs steps, batch_size, learning_rate"
                    )
        else:
            if not diffusion["weights"] and not diffusion["download"]:
                raise ConfigError("diffusion.weights is missing: a file of weights, or diffusion.download to get it")
            self._check_given(classifier, "classifier")
        for network in READERS:
            if self.any_reads(network):
                self._check_reader(network)

    @staticmethod
    def _check_given(section: Mapping[str, Any], key: str) -> None:
        """Refuse a section that lacks what its kind of classifier needs."""
        for needed, what in CLASSIFIERS[section["kind"]].needs.items():
            if not section.get(needed):
                raise ConfigError(f"{key}.{needed} is missing: {what}")

    def _check_reader(self, network: Network) -> None:
        """Refuse a reader that can't be had: neither given for every sigma nor trained."""
        dataset, key = self.config["dataset"]["name"], f"readers.{network}"
        trains = DATASETS[dataset].trains
        if network in KERNELS:
            reading = next(method for method in self.methods if self.reads(method, network))
            leave_out = f"leave it out, as in methods: {{{reading}: null}}"
            if not trains:
                raise ConfigError(f"methods.{reading} needs training images, which {dataset} has none of: {leave_out}")
            if DATASETS[dataset].needs_source:
                raise ConfigError(
                    f"methods.{reading} is for few and small training images, as the digits': {leave_out}"
                )
            return
        section = self.config["readers"].get(network)
        if not section:
            raise ConfigError(f"{key} is missing: a method reads it; it needs kind and weights, or training")
        known(section["kind"], CLASSIFIERS, f"{key}.kind")
        trainable = trains and CLASSIFIERS[section["kind"]].trainable and section["training"]
        for sigma in self.sigmas:
            if sigma not in section["weights"] and not trainable:
                raise ConfigError(
                    f'{key}.weights has no file for sigma {sigma}: give one, as in weights: {{"{sigma}": FILE}}; '
                    "the workflow trains its own for the digits and Fashion-MNIST, where training says how"
                )
        if section["weights"] and not self.trains:
            self._check_given(section, key)

    def _check_sampling(self) -> None:
        sampling = self.config["sampling"]
        n, alpha, sequential = sampling["n"], sampling["alpha"], sampling["mode"] == "sequential"
        known(self.config["bound"], (*BOUNDS, LABEL), "bound")
        least = least_n(alpha / 2 if self.asks_label else alpha, sequential=sequential)
        if n < least:
            raise ConfigError(
                f"sampling.n is {n}: with sampling.alpha = {alpha} even {n} of {n} samples can't certify anything; "
                f"n must be at least {least}"
            )
        if sequential and alpha > 0.3:
            raise ConfigError(f"sampling.alpha is {alpha}: sequential sampling needs at most 0.3")
        if sequential:
            self._check_questions()
        if (self.config["bound"] == LABEL) != self.asks_label:
            raise ConfigError(
                f"bound is {self.config['bound']}: label, and only that, is for sampling.stop.questions that ask about "
                "labels"
            )

    def _check_questions(self) -> None:
        sampling = self.config["sampling"]
        n, alpha, questions = sampling["n"], sampling["alpha"], sampling["stop"]["questions"]
        if not 0 <= sampling["stop"]["at_least"] <= n:
            raise ConfigError(f"sampling.stop.at_least is {sampling['stop']['at_least']}: there are at most n = {n}")
        most = max(map(float, self.sigmas)) * NormalDist().inv_cdf(alpha ** (1 / n))
        for place, question in enumerate(questions):
            key = f"sampling.stop.questions.{place}"
            if set(question) not in ({"bound", "radius"}, {"label"}):
                raise ConfigError(f"{key} is {json.dumps(question)}: it needs bound and radius, or label alone")
            if "label" in question:
                continue
            known(question["bound"], BOUNDS, f"{key}.bound")
            if question["radius"] > most:
                raise ConfigError(
                    f"{key}.radius is {question['radius']}: with n = {n} and alpha = {alpha} no radius above "
                    f"{most:.3f} can be certified at any of sigmas"
                )
        if len({"label" in question for question in questions}) > 1:
            raise ConfigError(
                "sampling.stop.questions ask about labels and about bounds: a run asks either, because the label needs "
                "no selection samples and a bound does"
            )

    # What runs

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.config["experiment"])

    @property
    def methods(self) -> dict[str, Mapping[str, Any]]:
        """The methods that run, with what is configured of each."""
        return {name: settings for name, settings in self.config["methods"].items() if settings}

    @property
    def sigmas(self) -> list[str]:
        """The noise levels, as text."""
        return [sigma_text(sigma) for sigma in self.config["sigmas"]]

    @property
    def images(self) -> int:
        """How many images are certified: the first so many of the list."""
        chosen = self.config["dataset"]["images"]
        return self.listed if chosen is None else int(chosen)

    @property
    def small(self) -> bool:
        """Whether the networks are small enough for any machine, as the embedded experiment's are."""
        unet = self.config["diffusion"]["unet"]
        return bool(unet["num_channels"] * unet["image_size"] <= 2048)

    @property
    def trains(self) -> bool:
        """Whether the workflow trains the networks itself."""
        return bool(self.config["models"]["source"] == "train")

    @property
    def asks_label(self) -> bool:
        """Whether the run asks about labels only: it gives the paper's two tables and nothing else."""
        return asks_label(self.config["sampling"])

    @property
    def n0(self) -> int:
        """How many samples select a class, at most: none where the label is what is asked about."""
        return 0 if self.asks_label else int(self.config["sampling"]["n0"])

    @property
    def partial(self) -> bool:
        """Whether tables are made of what is there, and nothing is run."""
        return bool(self.config["partial"])

    @property
    def partial_of(self) -> int | None:
        """Of how many images partial results are; None where they are whole."""
        return self.images if self.partial else None

    def settings(self) -> list[Setting]:
        """Return all (method, sigma, votes)."""
        return [
            Setting(method, sigma, votes)
            for method, chosen in self.methods.items()
            for sigma in self.sigmas
            for votes in chosen["votes"]
        ]

    def setting(self, method: str, sigma: str, votes: int | str) -> Setting:
        """Return the setting that wildcards name."""
        return Setting(method, sigma, int(votes))

    def shards(self) -> list[Shard]:
        """Return the shards: more images only add some at the end."""
        return self._shards

    @cached_property
    def _shards(self) -> list[Shard]:
        size = self.config["images_per_job"]
        return [
            Shard(f"{number:05d}", first, min(first + size, self.images))
            for number, first in enumerate(range(0, self.images, size))
        ]

    def shard(self, name: str) -> Shard:
        """Return the shard of this name."""
        return self.shards()[int(name)]

    def leader(self, setting: Setting) -> Setting:
        """Return the member of a family whose samples hold all others': it runs first, they read its ledger."""
        container = METHODS[setting.method].contained_in
        method = container if container in self.methods else setting.method
        return Setting(method, setting.sigma, max(self.methods[method]["votes"]))

    def leads(self, setting: Setting) -> bool:
        """Tell whether a setting draws samples of its own."""
        return self.leader(setting) == setting

    # What makes it

    def readers(self, method: str) -> dict[str, float]:
        """Return the methods that a method asks, with their weights."""
        asked = (self.config["methods"].get(method) or {}) if METHODS[method].asks_readers else {}
        names = asked.get("readers", [])
        return dict(zip(names, map(float, asked.get("weights", [1] * len(names))), strict=True))

    def guided(self, method: str) -> bool:
        """Tell whether a method, or one that it asks, needs a guidance scale."""
        return any(METHODS[name].guided for name in (method, *self.readers(method)))

    @property
    def any_guided(self) -> bool:
        """Whether any of the methods needs a guidance scale."""
        return any(self.guided(method) for method in self.methods)

    def networks_of(self, method: str) -> list[Network]:
        """Return the networks that a method reads, and those that the methods which it asks read."""
        wanted = {network for name in (method, *self.readers(method)) for network in METHODS[name].networks}
        return [network for network in ("diffusion", "classifier", *READERS) if network in wanted]

    def reads(self, method: str, network: Network) -> bool:
        """Tell whether a method reads a network."""
        return network in self.networks_of(method)

    def any_reads(self, network: Network) -> bool:
        """Tell whether any of the methods reads a network."""
        return any(self.reads(method, network) for method in self.methods)

    def identity(self, setting: Setting) -> dict[str, Any]:
        """Return everything in the configuration that determines a ballot, and nothing else.

        It is the family's: votes are numbered, so that how many are cast doesn't change any of them. A job adds
        what it finds out: the checksums of the networks and the kind of device. Not here: what changes a network's
        rounding only and is checked by every job (`diffusion.compile`), the batch sizes, the data set's name (a
        sample belongs to a number and to pixels).
        """
        config = self.config
        family = METHODS[setting.method].contained_in or setting.method
        found: dict[str, Any] = {"family": family, "sigma": float(setting.sigma), "seed": config["seed"]}
        if self.guided(family):
            found["guidance_scale"] = config["guidance_scale"][setting.sigma]
        found |= self.options(family)
        readers = self.readers(family)
        found |= {"readers": readers} if readers else {}
        keys: tuple[str, ...] = ("timesteps",)
        if self.reads(setting.method, "diffusion"):
            keys += ("schedule", "rescale_timesteps", "steps", "half_precision", "unet")
        members = [family, *(name for name, method in METHODS.items() if method.contained_in == family), *readers]
        networks = self.networks(family)
        return {
            **found,
            "diffusion": {key: config["diffusion"][key] for key in keys},
            **{name: networks[name] for name in self.networks_of(family) if name != "diffusion"},
            "code": {name: METHODS[name].counts for name in members},
        }

    def options(self, method: str) -> dict[str, str]:
        """Return the options of a method and of those that it asks, with their defaults."""
        chosen = {name: self.config["methods"].get(name) or {} for name in (method, *self.readers(method))}
        return {
            option: str(chosen[name].get(option, values[0]))
            for name in chosen
            for option, values in METHODS[name].options.items()
        }

    def sampling(self) -> dict[str, Any]:
        """Return the part of the sampling section that changes how many samples are drawn."""
        keys = {
            "fixed": ("mode", "n0", "n"),
            "sequential": ("mode", "n0", "n", "stop", "alpha", "chunk_size"),
        }
        sampling = self.config["sampling"]
        return {key: sampling[key] for key in keys[sampling["mode"]]}

    def job(self, setting: Setting, shard: Shard) -> dict[str, Any]:
        """Return the parameters of a certification job: a change of any is a reason to run it again."""
        return {
            "method": setting.method,
            "votes": setting.votes,
            "identity": self.identity(setting),
            "sampling": self.sampling(),
            "networks": self.networks(setting.method),
            "options": self.options(setting.method),
            "readers": self.readers(setting.method),
            "leader": list(self.leader(setting).variant),
            "reads_only": self.reads_only(setting),
            "ledgers": LEDGERS,
            "positions": [shard.first, shard.end],
        }

    def machine(self) -> dict[str, Any]:
        """Return what is the machine's: it changes how fast results come, and rounding, but is no reason to rerun."""
        config = self.config
        return {
            "device": config["device"],
            "jobs_per_gpu": config["jobs_per_gpu"],
            "compile": config["diffusion"]["compile"],
            "batch_size": {name: config[name]["batch_size"] for name in ("diffusion", "classifier")},
            "chunk_size": config["sampling"]["chunk_size"],
            "at_once": (OF_SMALL_NETWORKS if self.small else FULL_BATCHES) * config["diffusion"]["batch_size"],
        }

    def identities(self) -> list[dict[str, Any]]:
        """Return for every setting what counts of it must have been made by."""
        return [entry for _, entry in self._entries()]

    def _entries(self) -> list[tuple[Setting, dict[str, Any]]]:
        return [
            (found, {**vars(found), "identity": self.identity(found), "folders": self.folders(found)})
            for found in self.settings()
        ]

    def certificates(self) -> dict[str, Any]:
        """Return the parameters of certification: level and mode, and the bounds with their codes' checksums."""
        sampling = self.config["sampling"]
        bounds = {LABEL: None} if self.asks_label else {name: bound.radii for name, bound in BOUNDS.items()}
        return {"alpha": sampling["alpha"], "mode": sampling["mode"], "bounds": bounds}

    def look(self) -> dict[str, Any]:
        """Return what is chosen of how samples are certified: choosing after having seen them spends alpha again."""
        sampling = self.config["sampling"]
        asked = {"questions": sampling["stop"]["questions"]} if sampling["mode"] == "sequential" else {}
        return {
            "experiment": self.name,
            **{key: sampling[key] for key in ("mode", "n", "alpha")},
            "n0": self.n0,
            "bound": self.config["bound"],
            **asked,
        }

    def networks(self, method: str | None = None) -> dict[str, Any]:
        """Return what networks are, for rules that load them: the parts of their sections that they compute by.

        Those are the diffusion model, the classifier and the readers that a method reads.
        """
        sections = {
            "diffusion": ("schedule", "timesteps", "rescale_timesteps", "steps", "half_precision", "unet"),
            "classifier": ("kind", "classes", "half_precision"),
        }
        found = {name: {key: self.config[name][key] for key in keys} for name, keys in sections.items()}
        readers = [name for name in (self.networks_of(method) if method else []) if name in READERS]
        return found | {name: {**found["classifier"], "kind": self._kind(name)} for name in readers}

    def _kind(self, reader: Network) -> str:
        """Return the kind of classifier that a reader is."""
        return "kernel" if reader in KERNELS else str(self.config["readers"][reader]["kind"])

    def denoising(self, sigma: str) -> dict[str, Any]:
        """Return the parameters of the pictures of denoised images at a sigma."""
        names = [name for name in METHODS if name in self.methods]
        return {
            "networks": self.networks(),
            "methods": {name: self.options(name) for name in names},
            "guidance_scale": self.config["guidance_scale"].get(sigma),
            "images": self.images,
            "shown": min(self.config["figures"]["denoised_images"], self.images),
            "seed": self.config["seed"],
        }

    def budget(self) -> dict[str, Any]:
        """Return the parameters of the picture of the privacy budget."""
        scales = self.config["guidance_scale"]
        return {
            "networks": self.networks(),
            "scales": {sigma: scales.get(sigma) for sigma in self.sigmas},
            "trajectories": self.config["figures"]["budget_trajectories"],
            "seed": self.config["seed"],
        }

    def trajectory(self) -> dict[str, Any]:
        """Return the parameters of the picture of one trajectory: at the middle sigma."""
        sigma = sorted(self.sigmas, key=float)[len(self.sigmas) // 2]
        return {
            "networks": self.networks(),
            "sigma": float(sigma),
            "guidance_scale": self.config["guidance_scale"].get(sigma),
            "seed": self.config["seed"],
        }

    def compares_detail(self) -> bool:
        """Tell whether the two methods run whose denoised images claims compare."""
        return set(DETAILED) <= set(self.methods)

    def detail(self) -> dict[str, Any]:
        """Return the parameters of the measurements of denoised images."""
        scales = self.config["guidance_scale"]
        return {
            "networks": self.networks(),
            "methods": {name: self.options(name) for name in DETAILED},
            "scales": {sigma: scales.get(sigma) for sigma in self.sigmas},
            "images": self.images,
            "samples": DETAIL_SAMPLES,
            "seed": self.config["seed"],
        }

    def claims(self) -> dict[str, Any]:
        """Return what the claims' tests must know: where Carlini's method starts, what sequential sampling asked."""
        sampling = self.config["sampling"]
        return {
            **{key: self.config["diffusion"][key] for key in ("schedule", "timesteps", "steps")},
            "start": self.options("carlini")["start"],
            "questions": sampling["stop"]["questions"] if sampling["mode"] == "sequential" else None,
        }

    def audit(self) -> dict[str, Any]:
        """Return the parameters of the audit: a guidance scale for every sigma, none where no method is guided."""
        scales = {sigma: self.config["guidance_scale"][sigma] for sigma in self.sigmas} if self.any_guided else {}
        return {"networks": self.networks(), "scales": scales, "seed": self.config["seed"]}

    def checks(self, setting: Setting) -> list[Network]:
        """Return the networks of a setting that are tested on clean images before it samples; readers aren't."""
        return [network for network in LIMITS if self.reads(setting.method, network)]

    def check_of(self, network: Network) -> dict[str, Any]:
        """Return the parameters of a network's test, and where the network and the images are."""
        folders = [self.folder(network), self.folder("images")]
        return {"network": network, "networks": self.networks(), "folders": folders}

    def check_file(self, network: Network) -> str:
        """Return where a network's test leaves what it found, below the results, named by what it tests."""
        return f"models/{network}-{short_hash(self.check_of(network))[:8]}.json"

    def limit(self, network: Network) -> float | None:
        """Return what a network must be able to do. One that has passed isn't tested again because this changes."""
        limit: float | None = self.config[network][LIMITS[network]]
        return limit

    def drawing_samples(self) -> dict[str, Any]:
        """Return the parameters of the images that the diffusion model makes from nothing."""
        return {
            "diffusion": self.networks()["diffusion"],
            "samples": self.config["figures"]["samples"],
            "seed": self.config["seed"],
        }

    def reads_only(self, setting: Setting) -> bool:
        """Tell whether a setting's jobs take all their samples from their leader's ledger.

        In sequential mode a member may need samples that its leader didn't draw.
        """
        return self.config["sampling"]["mode"] == "fixed" and not self.leads(setting)

    def needs(self, setting: Setting | None = None) -> dict[str, int]:
        """Return what a job that loads the networks asks a scheduler for, or a certification job of a setting."""
        if setting is not None and self.reads_only(setting):
            return {"gpu": 0, "mem_mb": 1000, "runtime": 10}
        gpu = 0 if self.config["device"] == "cpu" else 1
        if setting is None:
            return {"gpu": gpu, "mem_mb": 4000 if self.small else 16000, "runtime": 60}
        return {"gpu": gpu, "mem_mb": 4000 if self.small else 16000, "runtime": 60 if self.small else 720}

    def needs_of_results(self) -> dict[str, int]:
        """Return what a job asks for that reads all counts: fifty kilobytes a row, and time to certify it."""
        rows = self.images * len(self.settings())
        return {"mem_mb": 4000 + rows // 20, "runtime": 30 + rows // 600}

    def needs_of_images(self) -> dict[str, int]:
        """Return what the job asks for that reads all images of the list: it holds them twice."""
        return {"mem_mb": 4000 + self.listed // 2, "runtime": 60 + self.listed // 500}

    # Where it is

    def recipe(self, what: Model) -> dict[str, Any]:
        """Return what makes a model or the images: the parameters of the rule that does, and the name of its folder."""
        config, dataset, diffusion = self.config, self.config["dataset"], self.config["diffusion"]
        classifier = config["classifier"]
        if what == "images":
            size = {key: diffusion["unet"][key] for key in ("image_size", "in_channels")}
            facts = {"crop": dataset["crop"], "number_of_classes": classifier["classes"]}
            source = {"source": dataset["source"]} if DATASETS[dataset["name"]].needs_source else {}
            return {"dataset": dataset["name"], **source, **size, **facts, **self.digests}
        if what == "compiled":
            return {key: diffusion[key] for key in ("unet", "half_precision")}
        if self.trains:
            trained = {"dataset": dataset["name"], "seed": config["seed"], "training": config[what]["training"]}
            keys = ("unet", "schedule", "timesteps") if what == "diffusion" else ("kind", "classes")
            return {**trained, **{key: config[what][key] for key in keys}}
        if what == "diffusion":
            return {key: diffusion[key] for key in ("weights", "download") if diffusion[key]}
        return self._given(classifier)

    def _given(self, classifier: Mapping[str, Any], **chosen: Any) -> dict[str, Any]:
        """Return what says of a classifier where it is had from."""
        found = {**{key: classifier.get(key) for key in GIVEN}, "classes": self.config["classifier"]["classes"]}
        if classifier["kind"] == "python":
            unet = self.config["diffusion"]["unet"]
            found["shape"] = [unet["in_channels"], unet["image_size"], unet["image_size"]]
        return {key: value for key, value in {**found, **chosen}.items() if value is not None}

    def reader(self, network: Network, sigma: str) -> dict[str, Any]:
        """Return what makes a reader for a sigma: a file that is given for it, or else training images."""
        config = self.config
        section = config["readers"].get(network) or {}
        if sigma in section.get("weights", {}) and not self.trains:
            return self._given(section, weights=section["weights"][sigma])
        made = {"reader": network, "sigma": float(sigma), "dataset": config["dataset"]["name"], "seed": config["seed"]}
        made |= {"kind": self._kind(network), "classes": config["classifier"]["classes"]}
        made |= {"training": section["training"]} if section else {}
        if network == "denoised":
            made |= {"diffusion": self.networks()["diffusion"], "denoiser": self.folder("diffusion")}
        return made

    @property
    def archive(self) -> str | None:
        """Where the data set's archive, or its folder of files, is downloaded to: one for all lists of its images."""
        dataset = self.config["dataset"]
        name = DATASETS[dataset["name"]].archive
        return f"resources/{dataset['name']}/{name}" if name and not dataset["source"] else None

    def archive_files(self) -> dict[str, dict[str, Any]]:
        """Return the files that are downloaded for the data set, each with its addresses and what it must be."""
        if not self.archive:
            return {}
        download = dict(self.config["dataset"]["download"])
        files = download.pop("files", None)
        if not files:
            return {self.archive: download}
        return {
            f"{self.archive}/{name}": {"urls": [f"{url}{name}" for url in download["urls"]], "md5": md5}
            for name, md5 in files.items()
        }

    def download_of_images(self) -> dict[str, Any]:
        """Return where the data set's archive comes from, or its files in the order of `archive_files`."""
        downloads = list(self.archive_files().values())
        return {
            "dataset": self.config["dataset"]["name"],
            "download": downloads[0] if len(downloads) == 1 else downloads,
        }

    def downloads(self) -> list[dict[str, Any]]:
        """Return the files that are downloaded where they aren't there yet, as `adds.data.preflight.Download` has them.

        The classifier is the hub's own business.
        """
        config = self.config
        hint = DATASETS[config["dataset"]["name"]].hint
        found = [("dataset", target, download, hint) for target, download in self.archive_files().items()]
        if not self.trains and not config["diffusion"]["weights"]:
            weights = f"{self.folder('diffusion')}/weights"
            found.append(("diffusion", weights, config["diffusion"]["download"], DIFFUSION_HINT))
        return [
            {
                "key": f"{section}.download",
                "target": Path(target),
                "urls": download["urls"],
                "size": download.get("size"),
                "hint": hint,
            }
            for section, target, download, hint in found
        ]

    def folder(self, what: Model) -> str:
        """Return where a model or the images are: experiments that need the same ones share them, and others can't."""
        return f"{self.resources}/{what}-{short_hash(self.recipe(what))[:8]}"

    def reader_folder(self, network: Network, sigma: str) -> str:
        """Return where a reader for a sigma is."""
        return f"{self.resources}/{network}-sigma{sigma}-{short_hash(self.reader(network, sigma))[:8]}"

    def folders(self, setting: Setting) -> dict[str, str]:
        """Return where the networks are that a setting reads."""
        return {
            network: self.reader_folder(network, setting.sigma) if network in READERS else self.folder(network)
            for network in self.networks_of(setting.method)
        }

    def all_folders(self) -> list[str]:
        """Return where the networks are that any setting reads."""
        return sorted({folder for setting in self.settings() for folder in self.folders(setting).values()})

    def of_all_networks(self, name: str) -> list[str]:
        """Return a file of every one of these folders."""
        return [f"{folder}/{name}" for folder in self.all_folders()]

    def network_files(self, setting: Setting) -> dict[str, str]:
        """Return the files of networks that a certification job reads, by the names of its inputs.

        That a network was compiled, or isn't any more, is no reason to sample again.
        """
        folders = self.folders(setting)
        files = {name: f"{folder}/weights" for name, folder in folders.items()}
        files |= {f"{name}_description": f"{folder}/description.json" for name, folder in folders.items()}
        return files | ({"compiled": f"{self.folder('compiled')}/asked"} if "diffusion" in folders else {})

    def reader_sources(self, network: Network, sigma: str) -> list[str]:
        """Return what a reader is made from: files that are given, or the diffusion model whose images it learns."""
        recipe = self.reader(network, sigma)
        denoiser = [f"{recipe['denoiser']}/{name}" for name in ("weights", "description.json") if "denoiser" in recipe]
        return denoiser + [recipe[key] for key in ("weights", "file") if key in recipe]

    def given_files(self) -> dict[str, str]:
        """Return what the configuration names and a run reads, by its keys."""
        keys = ("weights", "file")
        networks = [] if self.trains else [*LIMITS]
        named = [(f"{network}.{key}", self.config[network].get(key)) for network in networks for key in keys]
        for network in filter(self.any_reads, READERS):
            for sigma in self.sigmas:
                reader = self.reader(network, sigma)
                named += [(f'readers.{network}.{key}, for "{sigma}",', reader.get(key)) for key in keys]
        named += [("paper_tables", self.config["paper_tables"]), ("dataset.source", self.config["dataset"]["source"])]
        return {key: file for key, file in named if file}

    def require_files(self, *, besides: tuple[str, ...] = ()) -> None:
        """Refuse files that aren't there, ``besides`` those that the run fetches, which begin so.

        Snakemake would take results of earlier runs for what it can't make without them.
        """
        for key, name in self.given_files().items():
            if not (Path(name).exists() or name.startswith(besides)):
                raise ConfigError(f"{key} is {name!r}: there is no such file")

    def from_elsewhere(self) -> list[str]:
        """Return the networks that are downloaded or given, rather than made here."""
        given = [] if self.trains else [f"{self.folder(network)}/weights" for network in LIMITS]
        readers = {(network, sigma) for sigma in self.sigmas for network in READERS if self.any_reads(network)}
        recipes = [self.reader(*reader) for reader in sorted(readers)]
        return given + [recipe[key] for recipe in recipes for key in ("weights", "file") if key in recipe]

    @property
    def images_source(self) -> list[str]:
        """Where the images come from: a local copy or downloaded files, unless the data set needs neither."""
        source = self.config["dataset"]["source"]
        return list(self.archive_files()) or ([source] if source else [])

    def training_source(self, recipe: Mapping[str, Any]) -> list[str]:
        """Return where a network's training images come from: nowhere, where it isn't trained or needs no source."""
        trained = "training" in recipe and DATASETS[recipe["dataset"]].needs_source
        return self.images_source if trained else []

    @property
    def resources(self) -> str:
        """Where models and images are kept."""
        return f"resources/{self.config['dataset']['name']}"

    @property
    def results(self) -> str:
        """Where results go; partial ones are kept apart, so that they are never mistaken for whole ones."""
        return f"results/{self.name}" + ("/partial" if self.partial else "")

    def counts(self, setting: Setting, shard: Shard) -> str:
        """Return where a job leaves its counts, below the results."""
        return f"counts/{setting.folder}/{shard.name}.parquet"

    def leader_counts(self, setting: Setting, shard: Shard) -> str | None:
        """Return the counts that a job waits for, below the results: its leader's, unless it is the leader."""
        return None if self.leads(setting) else self.counts(self.leader(setting), shard)

    def all_counts(self) -> list[str]:
        """Return the counts of all jobs, below the results."""
        return [self.counts(setting, shard) for setting in self.settings() for shard in self.shards()]

    def finished_counts(self) -> list[str]:
        """Return the counts that partial results are made of: those that are there, as they are.

        They are in another folder than the partial results, so no job is run for them.
        """
        whole = Path(self.results).parent
        there = [str(whole / name) for name in self.all_counts() if (whole / name).exists()]
        if not there:
            raise ConfigError(f"partial is true, but {whole} has no counts yet")
        return there

    # What is shown

    def figure_votes(self) -> list[int]:
        """Return the numbers of votes that have a figure: those that some method takes."""
        taken = {votes for settings in self.methods.values() for votes in settings["votes"]}
        return [votes for votes in self.config["figures"]["votes"] if votes in taken]

    def compares_votes(self) -> bool:
        """Tell whether ADDS runs with one vote and with several, which the vote distribution compares."""
        votes = self.methods.get("adds", {"votes": []})["votes"]
        return 1 in votes and max(votes) > 1

    def figures(self) -> list[str]:
        """Return the names of a whole run's figures, the paper's first, in its order; partial results have none."""
        if self.partial:
            return []
        names = ["pipeline"] if "adds" in self.methods else []
        if not self.asks_label:
            names += [f"certified_accuracy_votes{votes}" for votes in self.figure_votes()]
        names.append("runtime")
        if not self.asks_label and self.compares_votes():
            names.append("vote_distribution")
        names += [f"denoised_sigma{sigma}" for sigma in self.sigmas] if self.any_reads("diffusion") else []
        names += [] if self.asks_label else ["bounds"]
        names += ["samples_needed"] if self.replays() else []
        names += ["budget"] if self.any_guided else []
        names += ["samples"] if self.config["figures"]["samples"] and self.any_reads("diffusion") else []
        names += ["loss"] if self.trains else []
        return names

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        names = ["certified_accuracy", "clean_accuracy"]
        if self.asks_label:
            return names
        names += ["true_class_probability", "bounds", "average_certified_radius"]
        return names + (["savings"] if self.replays() else []) + ([] if self.partial else ["claims"])

    def replays(self) -> bool:
        """Whether the run's samples are looked at as sequential sampling would have: a sequential run did so itself."""
        return not self.partial and self.config["sampling"]["mode"] == "fixed"

    def figure(self, *keys: str, **content: Any) -> dict[str, Any]:
        """Return the parameters of a figure, so that a change of one key reruns those only that show it.

        ``keys`` are those of the section ``figures`` beside its look. ``content`` is what else the figure or its
        caption shows.
        """
        figures = self.config["figures"]
        return {**{key: figures[key] for key in ("font_size", "dpi", *keys)}, **content}

    def report(self) -> dict[str, Any]:
        """Return what the report says at its top, and what it shows in which order, by folder and name."""
        told, dataset = self.samples(), DATASETS[self.config["dataset"]["name"]].title
        selection = f"{told['at_most']}{told['n0']:,} selection and " if self.n0 else ""
        by = "whether its label is certified" if self.asks_label else BOUNDS[self.config["bound"]].title
        first = ["certified_accuracy", "clean_accuracy"]
        figures = [("figures", name) for name in self.figures()]
        curves = [entry for entry in figures if entry[1].startswith("certified_accuracy")]
        paper = [entry for entry in figures if entry[1].split("_sigma")[0] in PAPER_FIGURES]
        tables = [("tables", name) for name in self.tables() if name not in (*first, "claims")]
        parts = {
            "The paper's figures": paper,
            "Claims": [("tables", "claims")] if "claims" in self.tables() else [],
            "More tables": tables,
            "More figures": [entry for entry in figures if entry not in (*paper, *curves)],
        }
        return {
            "title": f"Adaptive Diffusion Denoised Smoothing on {dataset}",
            "facts": f"Experiment {self.name}: {self.images} images, sigma {', '.join(self.sigmas)}, {selection}"
            f"{told['at_most']}{told['n']:,} estimation samples of each, alpha = {told['alpha']:g}. Accuracies are by "
            f"{by}.",
            "first": [*(("tables", name) for name in first), *curves],
            "parts": {name: shown for name, shown in parts.items() if shown},
            "explorer": self.explores,
        }

    def report_shows(self) -> list[str]:
        """Return the pages that the report shows, below the results."""
        shown = self.report()
        entries = [*shown["first"], *(entry for part in shown["parts"].values() for entry in part)]
        return [f"{folder}/{name}.html" for folder, name in entries]

    @property
    def explores(self) -> bool:
        """Whether there is an explorer: it is about radii, and about all images."""
        return not self.partial and not self.asks_label

    def explorer(self) -> dict[str, Any]:
        """Return the parameters of the explorer; ``closeups`` are the sigmas whose denoised images it shows."""
        pictures = bool(self.config["figures"]["explorer_pictures"])
        return {
            "experiment": self.name,
            "bound": self.config["bound"],
            "pictures": pictures,
            "closeups": self.sigmas if pictures and self.any_reads("diffusion") else [],
        }

    def samples(self) -> dict[str, Any]:
        """Return the numbers of samples and the level, as captions tell them."""
        sampling = self.config["sampling"]
        most = "at most " if sampling["mode"] == "sequential" else ""
        return {"n0": self.n0, "n": sampling["n"], "alpha": sampling["alpha"], "at_most": most}

    def identity_file(self, setting: Setting) -> str:
        """Return a file, below the results, that is named by all that determines a setting's counts.

        A changed configuration names a new file, which is younger than the old counts, so that Snakemake makes them
        again. Its record of params alone would do, if it never got lost, as it does when results are copied.
        """
        parts = [self.identity(setting), self.sampling(), self.config["images_per_job"]]
        return f"identity/{setting.folder}/{short_hash(parts)}"

    def images_file(self) -> str:
        """Return such a file for which images are certified."""
        return f"identity/images/{short_hash(self.images)}"

    def certificates_file(self) -> str:
        """Return such a file for how samples are certified."""
        return f"identity/certificates/{short_hash([self.certificates(), self.look()])}"

    def pages(self) -> list[str]:
        """Return the pages to open first, below the results."""
        return ([] if self.partial else ["report.html"]) + (["explorer.html"] if self.explores else [])

    def places(self) -> list[str]:
        """Return what the terminal names in the end: pages to open first, folders, and the certificates."""
        return [*self.pages(), "tables/", *(["figures/"] if self.figures() else []), "certificates.csv"]

    def targets(self) -> list[str]:
        """Return everything that a run is to leave, below the results."""
        names = ["plan.json", "certificates.csv", "provenance.json", "summary.txt"]
        # Snakemake makes what is missing only where it is asked for.
        names += [self.images_file(), self.certificates_file()]
        names += [] if self.partial else [self.identity_file(setting) for setting in self.settings()]
        names += [f"figures/{name}.{suffix}" for name in self.figures() for suffix in ("pdf", "png", "csv", "html")]
        names += [f"tables/{name}.{suffix}" for name in self.tables() for suffix in ("csv", "md", "tex", "html")]
        return names + self.pages()

    def plan(self) -> dict[str, Any]:
        """Return what the run is going to do, for `python -m adds.monitor.status`."""
        sampling = self.config["sampling"]
        return {
            "experiment": self.name,
            "settings": [{**entry, "leads": self.leads(found)} for found, entry in self._entries()],
            "shards": {shard.name: len(shard) for shard in self.shards()},
            "n0": self.n0,
            **{key: sampling[key] for key in ("mode", "n")},
            "at_least": sampling["stop"]["at_least"],
            "chain": {key: self.config["diffusion"][key] for key in ("schedule", "timesteps", "steps")},
        }


def asks_label(sampling: Mapping[str, Any]) -> bool:
    """Tell of a section ``sampling`` whether its questions are about labels."""
    return sampling["mode"] == "sequential" and any("label" in question for question in sampling["stop"]["questions"])


LIMITS: dict[Network, str] = {"diffusion": "most_error", "classifier": "least_accuracy"}
"""Networks that are tested before anything is sampled, each with the key that says what it must be able to do."""

GIVEN = ("kind", "name", "revision", "weights", "file")
"""What of a classifier's section says where it is had from."""


def least_n(alpha: float, *, sequential: bool) -> int:
    """Return the smallest n for which n of n samples can certify something.

    Fixed: 2^-n is below alpha. Sequential: the evidence (2^(n + 1) - 1) / (n + 1) reaches 1 / alpha.
    """
    n = 1
    while (n + 1) / (2 ** (n + 1) - 1) > alpha if sequential else 0.5**n >= alpha:
        n += 1
    return n
