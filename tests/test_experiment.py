"""What a configuration means, and what is refused with which words: no Snakemake, milliseconds."""

import json

import pandas as pd
import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from snakemake.cli import parse_config

from adds.certificates.certificate import least_certifying_n
from adds.configuration import ConfigError, accept_words, explain
from adds.experiment import Experiment, Setting, least_n
from adds.registry import METHODS
from tests.workflow import PROJECT, TINY, merged

SCHEMA = yaml.safe_load((PROJECT / "workflow/schemas/config.schema.yaml").read_text())


def configured(*names, **changes):
    """The paper's configuration, changed by files of config/ and by single keys."""
    config = yaml.safe_load((PROJECT / "config/config.yaml").read_text())
    for name in names:
        config = merged(config, yaml.safe_load((PROJECT / f"config/{name}.yaml").read_text()))
    return merged(config, changes)


def understood(config):
    """What the workflow makes of a configuration, or the one line that it prints."""
    try:
        Draft202012Validator(SCHEMA).validate(config)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None
    return Experiment.from_config(config, PROJECT)


def in_order(value):
    """Name a parameter the same in every process, which sets don't do."""
    return str(sorted(value) if isinstance(value, set) else value)


def digits(**changes):
    return understood(merged(configured("digits"), merged(TINY, changes)))


def paper(**changes):
    return understood(configured(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": {"nn": 5}}, "sampling.nn: there is no such key, did you mean `n`? (config/README.md explains"),
        ({"sampl": {"n": 5}}, "sampl: there is no such key, did you mean `sampling`?"),
        ({"diffusion": {"checkpoint": "x.pt"}}, "diffusion.checkpoint: there is no such key"),
        ({"sigmas": [0.5, 2.5]}, "guidance_scale has no entry for sigma 2.5: ADDS needs one for each of sigmas"),
        ({"sigmas": [0]}, "sigmas.0 is 0: it must be above 0"),
        ({"methods": {"magic": {"votes": [1]}}}, "methods: there is no 'magic'; choose from rs, carlini, densepure"),
        ({"methods": {"densepur": {"votes": [1]}}}, "there is no 'densepur', did you mean `densepure`?"),
        ({"methods": {"adds": {"votes": [0]}}}, "methods.adds.votes.0 is 0: it must be at least 1"),
        ({"methods": {"carlini": {"votes": [1, 5]}}}, "methods.carlini.votes is [1, 5]: carlini has no votes to take"),
        ({"methods": {"densepure": {"start": "late"}}}, "methods.densepure.start: there is no 'late'; choose"),
        ({"methods": {"adds": {"start": "grid"}}}, "methods.adds.start: there is no such key"),
        ({"methods": dict.fromkeys(METHODS)}, "methods: every method is null"),
        ({"guidance_scale": {"0.5": 1.5}}, "guidance_scale.0.5 is 1.5: it must be at most 1"),
        ({"guidance_scale": {"half": 0.5}}, "guidance_scale has the key 'half': keys must be sigmas"),
        ({"sampling": {"n": 3}}, "sampling.n is 3: with sampling.alpha = 0.05 even 3 of 3 samples can't certify"),
        ({"sampling": {"mode": "sequential", "n": 6}}, "sampling.n is 6"),
        ({"sampling": {"mode": "sequential", "alpha": 0.4}}, "sampling.alpha is 0.4: sequential sampling needs"),
        (
            {"sampling": {"mode": "sequential", "n": 50, "stop": {"questions": [{"bound": "pair", "radius": 9.0}]}}},
            "sampling.stop.questions.0.radius is 9.0: with n = 50 and alpha = 0.05 no radius above",
        ),
        ({"sampling": {"stop": {"bound": "pair"}}}, "sampling.stop.bound: there is no such key"),
        (
            {"sampling": {"mode": "sequential", "stop": {"questions": [{"bound": "best", "radius": 0.0}]}}},
            "sampling.stop.questions.0.bound: there is no 'best'; choose from cohen, pair",
        ),
        (
            {"sampling": {"mode": "sequential", "stop": {"questions": [{"label": "majority", "radius": 0.0}]}}},
            'questions.0 is {"label": "majority", "radius": 0.0}: it needs bound and radius, or label alone',
        ),
        (
            {
                "bound": "label",
                "sampling": {
                    "mode": "sequential",
                    "stop": {"questions": [{"label": "top"}, {"bound": "pair", "radius": 0.0}]},
                },
            },
            "sampling.stop.questions ask about labels and about bounds: a run asks either",
        ),
        (
            {"sampling": {"mode": "sequential", "stop": {"questions": [{"label": "top"}]}}},
            "bound is cohen: label, and only that, is for sampling.stop.questions that ask about labels",
        ),
        (
            {"bound": "label"},
            "bound is label: label, and only that, is for sampling.stop.questions that ask about labels",
        ),
        (
            {"sampling": {"mode": "sequential", "n": 50, "stop": {"at_least": 51}}},
            "sampling.stop.at_least is 51: there are at most n = 50",
        ),
        ({"bound": "best"}, "bound: there is no 'best'; choose from cohen, pair, label"),
        ({"diffusion": {"steps": 7}}, "diffusion.steps is 7: it must divide diffusion.timesteps, 1000"),
        ({"dataset": {"images": 401}}, "dataset.images is 401: dataset.list, config/digits.csv, has 400"),
        ({"dataset": {"images": 0}}, "dataset.images is 0: it must be at least 1"),
        ({"dataset": {"name": "digit"}}, "dataset.name: there is no 'digit', did you mean `digits`?"),
        ({"dataset": {"list": "nowhere.csv"}}, "dataset.list is 'nowhere.csv': there is no such file"),
        (
            {"classifier": {"kind": "large"}},
            "classifier.kind: there is no 'large'; choose from timm, small, grey28, python",
        ),
        ({"classifier": {"kind": "python"}, "models": {"source": "given"}}, "classifier.file is missing"),
        ({"classifier": {"kind": "timm"}, "models": {"source": "given"}}, "classifier.name is missing: timm's name"),
        *(
            (
                {"classifier": {"kind": kind, "weights": None}, "models": {"source": "given"}},
                "classifier.weights is missing: a file of weights; or set models.source to train",
            )
            for kind in ("small", "grey28")
        ),
        *(
            (
                {
                    "methods": {"rs_trained": {"votes": [1]}},
                    "readers": {"noised": {"kind": kind, "weights": {"0.5": "config/digits.csv", "1.0": "Snakefile"}}},
                    "models": {"source": "given"},
                },
                f"readers.noised.{needed} is missing",
            )
            for kind, needed in (("timm", "name"), ("python", "file"))
        ),
        (
            {"diffusion": {"unet": {"predicts_v": True}, "timesteps": 500}},
            "diffusion.unet.predicts_v is true: that needs diffusion.timesteps = 1000",
        ),
        (
            {"diffusion": {"unet": {"predicts_v": True}, "rescale_timesteps": True}},
            "diffusion.unet.predicts_v is true: that needs diffusion.timesteps = 1000, not rescaled",
        ),
        (
            {"diffusion": {"download": {"urls": ["http://x"], "files": {"a": "0" * 32}}}},
            "diffusion.download.files: only a data set may be several files",
        ),
        (
            {"classifier": {"kind": "timm"}, "models": {"source": "train"}},
            "models.source is train: the workflow trains only",
        ),
        (
            {"diffusion": {"training": None}, "models": {"source": "train"}},
            "diffusion.training is missing: models.source: train needs steps, batch_size, learning_rate",
        ),
        ({"figures": {"votes": [7]}}, "figures.votes is [7]: no method takes so many votes"),
        ({"seed": "zero"}, 'seed is "zero": it must be a whole number'),
        ({"partial": "perhaps"}, 'partial is "perhaps": it must be true or false'),
        ({"sigmas": 0.5}, "sigmas is 0.5: it must be a list"),
        ({"experiment": "ledger"}, "experiment is 'ledger': results/ledger holds the samples of all experiments"),
        ({"methods": {"adds": {"vote": [1]}}}, "methods.adds.vote: there is no such key, did you mean `votes`?"),
        (
            {"diffusion": {"training": {"step": 5}}},
            "diffusion.training.step: there is no such key, did you mean `steps`?",
        ),
        ({"dataset": {"download": {"url": ["x"]}}}, "dataset.download.url: there is no such key, did you mean `urls`?"),
        ({"guidance_scale": {"0.5": 0.8, "0.50": 0.7}}, "two of them are the same sigma"),
        (
            {"methods": {"consensus": {"votes": [1], "readers": []}}},
            "methods.consensus.readers is missing: a list of methods, as in [bayes, rs_trained]",
        ),
        (
            {"methods": {"consensus": {"votes": [1], "readers": ["carlini"]}}},
            "methods.consensus.readers: there is no 'carlini', did you mean `carlini_trained`?",
        ),
        (
            {"methods": {"consensus": {"votes": [1], "readers": ["bayes", "bayes"]}}},
            'methods.consensus.readers is ["bayes", "bayes"]: it lists something twice; give it more weight instead',
        ),
        (
            {"methods": {"consensus": {"votes": [1], "readers": ["bayes", "rs_trained"], "weights": [1, 0]}}},
            "methods.consensus.weights is [1, 0]: it needs a number above 0 for each of methods.consensus.readers",
        ),
        (
            {"methods": {"consensus": {"votes": [1], "readers": ["bayes"], "weights": [2, 1]}}},
            "methods.consensus.weights is [2, 1]: it needs a number above 0 for each of methods.consensus.readers",
        ),
        ({"methods": {"bayes": {"votes": [1], "readers": []}}}, "methods.bayes.readers: there is no such key"),
        ({"methods": {"adds_bridge": {"votes": [1], "ending": "both"}}}, "methods.adds_bridge.ending: there is no"),
        (
            {"methods": {"rs_trained": {"votes": [1]}}, "readers": {"noised": None}},
            "readers.noised is missing: a method reads it",
        ),
        (
            {"methods": {"rs_trained": {"votes": [1]}}, "readers": {"noised": {"kind": "timm"}}},
            "readers.noised.weights has no file for sigma 0.5: give one",
        ),
        (
            {
                "methods": {"bayes": {"votes": [1]}},
                "dataset": {"name": "cifar10", "source": "c.tar.gz", "list": "config/cifar10_every_20th.csv"},
            },
            "methods.bayes needs training images, which cifar10 has none of: leave it out, as in methods: {bayes: nu",
        ),
        ({"readers": {"noised": {"weight": {}}}}, "readers.noised.weight: there is no such key, did you mean"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_in_one_line(changes, message):
    with pytest.raises(ConfigError) as error:
        digits(**changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_key_is_named():
    config = configured("digits")
    del config["sampling"]["alpha"]
    with pytest.raises(ConfigError, match=r"sampling\.alpha is missing \(config/README\.md"):
        understood(config)


def test_the_papers_jobs():
    experiment = paper()
    assert len(experiment.settings()) == 18
    assert len(experiment.settings()) * len(experiment.shards()) == 4500
    followers = [setting for setting in experiment.settings() if not experiment.leads(setting)]
    assert len(followers) * len(experiment.shards()) == 2250
    assert experiment.leader(Setting("adds_oneshot", "1.0", 1)) == Setting("adds", "1.0", 5)
    assert experiment.leader(Setting("carlini", "2.0", 1)) == Setting("carlini", "2.0", 1)


def test_shards_cover_the_images_and_more_images_only_add_some():
    few, more = digits(dataset={"images": 5}), digits(dataset={"images": 9})
    assert [(shard.first, shard.end) for shard in few.shards()] == [(0, 2), (2, 4), (4, 5)]
    assert [shard.name for shard in more.shards()][:2] == ["00000", "00001"]
    assert more.shards()[1] == few.shards()[1]
    assert digits(dataset={"images": None}).images == 400


@pytest.mark.parametrize(
    ("changes", "methods"),
    [
        ({"seed": 1}, {"carlini", "densepure", "adds", "adds_oneshot"}),
        ({"guidance_scale": {"0.5": 0.7}}, {"adds", "adds_oneshot"}),
        ({"methods": {"densepure": {"votes": [1], "start": "exact"}}}, {"densepure"}),
        ({"diffusion": {"steps": 10}}, {"carlini", "densepure", "adds", "adds_oneshot"}),
        ({"diffusion": {"half_precision": True}}, {"carlini", "densepure", "adds", "adds_oneshot"}),
        ({"diffusion": {"compile": True}}, set()),
        ({"diffusion": {"batch_size": 3}}, set()),
        ({"sampling": {"n": 99, "chunk_size": 3}}, set()),
        ({"experiment": "other", "images_per_job": 3, "dataset": {"images": 7}, "device": "auto"}, set()),
        ({"methods": {"adds": {"votes": [1, 9]}}}, set()),
    ],
    ids=in_order,
)
def test_the_identity_is_what_determines_a_ballot_and_nothing_else(changes, methods):
    before, after = digits(), digits(**changes)
    differing = {
        method
        for method in before.methods
        if before.identity(Setting(method, "0.5", 1)) != after.identity(Setting(method, "0.5", 1))
    }
    assert differing == methods


def test_rs_depends_on_no_diffusion_model():
    before, after = (digits(methods={"rs": {"votes": [1]}}, diffusion={"steps": steps}) for steps in (20, 10))
    assert before.identity(Setting("rs", "0.5", 1)) == after.identity(Setting("rs", "0.5", 1))


def test_members_of_a_family_share_an_identity_and_others_do_not():
    experiment = digits()
    adds = experiment.identity(Setting("adds", "0.5", 5))
    assert experiment.identity(Setting("adds", "0.5", 1)) == adds
    assert experiment.identity(Setting("adds_oneshot", "0.5", 1)) == adds
    assert experiment.identity(Setting("adds", "1.0", 5)) != adds
    assert experiment.identity(Setting("densepure", "0.5", 1)) != adds


def test_a_change_of_code_changes_the_familys_identity_only(monkeypatch):
    import dataclasses

    before = {method: digits().identity(Setting(method, "0.5", 1)) for method in digits().methods}
    monkeypatch.setitem(METHODS, "adds_oneshot", dataclasses.replace(METHODS["adds_oneshot"], counts="other"))
    after = {method: digits().identity(Setting(method, "0.5", 1)) for method in digits().methods}
    assert {method for method in before if before[method] != after[method]} == {"adds", "adds_oneshot"}


def test_the_machines_settings_are_no_part_of_a_job():
    before = digits()
    after = digits(device="auto", jobs_per_gpu=2, diffusion={"batch_size": 5, "compile": True})
    setting, shard = before.settings()[0], before.shards()[0]
    assert before.job(setting, shard) == after.job(setting, shard)
    assert before.machine() != after.machine()


def test_jobs_of_many_images_ask_for_more():
    """All of ImageNet's 50,000 are held twice, 10 GB each; a bound takes up to a tenth of a second a row."""
    paper, many = understood(configured()), understood(configured())
    object.__setattr__(many, "listed", 50_000)
    assert paper.needs_of_images()["mem_mb"] < 5000
    assert many.needs_of_images()["mem_mb"] > 20_000
    rows = paper.images * len(paper.settings())
    assert paper.needs_of_results()["runtime"] - 30 >= rows * 0.1 / 60 - 1


def test_jobs_that_only_read_ask_for_little():
    """Half of the paper's jobs; in sequential mode they may have to draw, and ask for what a leader asks for."""
    fixed, sequential = paper(), paper(sampling={"mode": "sequential"})
    leader, follower = Setting("adds", "1.0", 5), Setting("adds", "1.0", 1)
    assert fixed.needs(leader) == {"gpu": 1, "mem_mb": 16000, "runtime": 720}
    assert fixed.needs(follower) == {"gpu": 0, "mem_mb": 1000, "runtime": 10}
    assert sequential.needs(follower) == sequential.needs(leader) == fixed.needs(leader)
    assert digits().needs(leader)["gpu"] == 0


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.001, 1e-6])
def test_the_smallest_n_is_the_certificates_own(alpha):
    """Snakemake's process has no scipy: the same number by a formula, for the weaker of the two bounds."""
    for mode in ("fixed", "sequential"):
        assert least_n(alpha, sequential=mode == "sequential") == max(
            least_certifying_n(alpha, mode=mode, bound=bound) for bound in ("cohen", "pair")
        )


def test_swapped_values_are_another_job():
    """Snakemake compares params as a set of values: only one dict keeps n0 and n apart."""
    one, other = digits(sampling={"n0": 20, "n": 30}), digits(sampling={"n0": 30, "n": 20})
    setting, shard = one.settings()[0], one.shards()[0]
    assert one.job(setting, shard) != other.job(setting, shard)


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({}, set()),
        ({"experiment": "other", "diffusion": {"steps": 10}}, set()),
        ({"seed": 1}, {"diffusion", "classifier"}),
        ({"diffusion": {"training": {"steps": 30}}}, {"diffusion"}),
        ({"classifier": {"training": {"steps": 30}}}, {"classifier"}),
        ({"diffusion": {"unet": {"num_channels": 64}}}, {"diffusion", "compiled"}),
        ({"dataset": {"crop": False}}, {"images"}),
        ({"dataset": {"source": "elsewhere"}}, set()),  # the digits need none
    ],
    ids=in_order,
)
def test_a_models_folder_is_named_by_what_makes_it(changes, moved):
    trained = {"models": {"source": "train"}}
    before, after = digits(**trained), digits(**merged(trained, changes))
    models = ("images", "diffusion", "classifier", "compiled")
    assert {model for model in models if before.folder(model) != after.folder(model)} == moved


def test_images_of_another_source_are_other_images():
    one, other = (paper(dataset={"source": source}) for source in ("val", "val2"))
    assert one.folder("images") != other.folder("images")
    assert one.archive is None
    assert paper().archive == paper(dataset={"images": 3}).archive == "resources/imagenet/ILSVRC2012_img_val.tar"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("partial=true", {"partial": True}),
        ("partial=yes", {"partial": True}),
        ("partial=1", {"partial": True}),
        ("partial=True", {"partial": True}),
        ("partial=0", {"partial": False}),
        ("partial=off", {"partial": False}),
        ("sampling={n: 1000, alpha: 1e-3}", {"sampling": {"n": 1000, "alpha": 0.001}}),
        ("sigmas=[0.5, 1]", {"sigmas": [0.5, 1.0]}),
        ("dataset={images: null, crop: no}", {"dataset": {"images": None, "crop": False}}),
        ("methods={adds: {votes: [1, 9]}, rs: ~}", {"methods": {"adds": {"votes": [1, 9]}, "rs": None}}),
        ("guidance_scale={1.0: 0.7}", {"guidance_scale": {"1.0": 0.7}}),
        ("readers={noised: null}", {"readers": {"noised": None}}),
        ("figures={votes: [5], dpi: 90}", {"figures": {"votes": [5], "dpi": 90}}),
        ("experiment=mine", {"experiment": "mine"}),
    ],
)
def test_what_people_type_is_accepted(typed, meant):
    """As Snakemake hands it over."""
    changes = parse_config([typed])
    config, wanted = (configured("digits", **words) for words in (changes, meant))
    assert accept_words(config, SCHEMA, SCHEMA["$defs"]) == wanted


@pytest.mark.parametrize("typed", ["partial=maybe", "partial=2", "sampling={n: many}", "sampling={alpha: nan}"])
def test_what_makes_no_sense_is_refused_by_name(typed):
    config = accept_words(configured("digits", **parse_config([typed])), SCHEMA, SCHEMA["$defs"])
    with pytest.raises(
        ConfigError, match=r"(partial|sampling\.\w+) is .*: it must be (true or false|a whole number|a number)"
    ):
        understood(config)


def test_rs_alone_needs_no_picture_of_a_denoiser():
    methods = {**dict.fromkeys(METHODS), "rs": {"votes": [1]}}
    experiment = paper(methods=methods, figures={"votes": [1]})
    assert not any("denoised" in name for name in experiment.figures())
    assert not experiment.any_reads("diffusion")


def test_everything_that_rules_get_can_be_written_as_json():
    """Snakemake keeps params as text."""
    experiment = paper()
    setting, shard = experiment.settings()[0], experiment.shards()[0]
    for value in (experiment.job(setting, shard), experiment.plan(), experiment.identities(), experiment.config):
        assert json.loads(json.dumps(value))


@pytest.mark.parametrize("name", ["digits", "cifar10", "sequential", "paper_samples"])
def test_every_configuration_that_is_shipped_is_understood(name):
    files = [name] if name in ("digits", "cifar10") else ["digits", name]
    assert understood(configured(*files)).settings()


READERS = {"bayes_radius": 2, "rs_trained": 1}


def test_a_consensus_is_made_by_its_readers():
    """Their networks, code, weights and options are its own; another weight is another identity."""

    def consensus(**readers):
        asked = {"readers": list(readers), "weights": list(readers.values())}
        experiment = digits(methods={"consensus": {"votes": [1], **asked}})
        return experiment, experiment.setting("consensus", "0.5", 1)

    experiment, setting = consensus(**READERS)
    assert experiment.networks_of("consensus") == ["noised", "radius_kernel"]
    assert set(experiment.folders(setting)) == {"noised", "radius_kernel"}
    identity = experiment.identity(setting)
    assert identity["readers"] == READERS
    assert set(identity["code"]) == {"consensus", *READERS}
    assert "guidance_scale" not in identity
    other, same = consensus(bayes_radius=1, rs_trained=1)
    assert other.identity(same) != identity
    guided, setting = consensus(adds_bridge=1)
    assert guided.identity(setting)["guidance_scale"] == 0.8
    assert guided.identity(setting)["ending"] == "oneshot"
    assert guided.networks_of("consensus") == ["diffusion", "classifier"]
    assert guided.audit()["scales"] == dict.fromkeys(guided.sigmas, 0.8), "what it asks is audited"
    unguided = digits(
        methods={**dict.fromkeys(METHODS), "consensus": {"votes": [1], "readers": ["bayes"], "weights": [1]}}
    )
    assert not unguided.audit()["scales"]


def test_readers_belong_to_a_sigma_and_a_given_file_is_used():
    methods = {"rs_trained": {"votes": [1]}, "carlini_trained": {"votes": [1]}}
    experiment = digits(methods=methods, readers={"noised": {"weights": {"0.50": "mine.pt"}}})
    folders = {
        experiment.reader_folder(network, sigma) for network in ("noised", "denoised") for sigma in ("0.5", "1.0")
    }
    assert len(folders) == 4
    assert experiment.reader("noised", "0.5") == {"kind": "small", "classes": 10, "weights": "mine.pt"}
    trained = experiment.reader("noised", "1.0")
    assert trained["training"] == configured("digits")["readers"]["noised"]["training"]
    assert trained["sigma"] == 1.0
    assert experiment.reader("denoised", "1.0")["denoiser"] == experiment.folder("diffusion")
    anew = digits(methods=methods, readers={"noised": {"weights": {"0.5": "mine.pt"}}}, models={"source": "train"})
    assert "training" in anew.reader("noised", "0.5")


def test_other_methods_jobs_don_t_depend_on_the_readers():
    changes = {"readers": {"noised": {"training": {"steps": 7}}}, "methods": {"rs_trained": {"votes": [1]}}}
    before, after = digits(), digits(**changes)
    for setting in before.settings():
        assert before.job(setting, before.shard("00000")) == after.job(setting, after.shard("00000"))


def test_the_explorer_is_for_whole_runs_about_radii():
    assert "explorer.html" in digits().targets()
    assert "explorer.html" not in digits(partial=True).targets()
    stop = {"questions": [{"label": "majority"}]}
    labels = digits(bound="label", sampling={"mode": "sequential", "stop": stop})
    assert "explorer.html" not in labels.targets()


def test_the_explorer_has_pictures_only_where_they_are_asked_for():
    assert digits().explorer()["closeups"] == digits().sigmas
    without = digits(figures={"explorer_pictures": False}).explorer()
    assert (without["pictures"], without["closeups"]) == (False, [])
    assert understood(configured()).explorer()["pictures"] is False, "ImageNet's licence"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("digits", "num,lab\n360,6\n", "it lacks the column number that dataset.name digits needs, its first line is"),
        ("digits", "number;label\n360;6\n", "it lacks the column number .* its first line is 'number;label'"),
        ("digits", "number,label\n", "it lists no image"),
        ("digits", "", "it lacks the column number"),
        ("digits", "number,label\n360,6\nfoo,3\n", "number 'foo' in line 3 is not a whole number"),
        ("digits", "number,label\n360,six\n", "label 'six' in line 2 is not a whole number"),
        ("digits", "number,label\n360,6\n\n\nfoo,3\n", "number 'foo' in line 5 is not a whole number"),
        ("files", "number,label\n1,2\n", "it lacks the column file .*; python -m adds.data.files FOLDER writes one"),
        ("files", "file,label\na.png,cat\n", "label 'cat' in line 2 is not a whole number"),
        ("digits", b"\xff\xfe\x00", "it is no CSV file"),
    ],
)
def test_lists_that_cant_be_read_are_named(tmp_path, name, text, message):
    (tmp_path / "list.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    config = {"name": name, "list": str(tmp_path / "list.csv"), "source": str(tmp_path), "images": None}
    with pytest.raises(ConfigError, match=rf"^dataset\.list is .*list\.csv': {message}"):
        digits(dataset=config)


def test_images_of_ones_own_need_a_folder(tmp_path):
    (tmp_path / "list.csv").write_text("file\na.png\n")
    with pytest.raises(ConfigError, match=r"^dataset\.source is missing: dataset\.name files needs a folder"):
        digits(dataset={"name": "files", "list": str(tmp_path / "list.csv"), "source": None, "images": None})


def test_files_that_are_not_there_are_named(tmp_path):
    """Snakemake would go on with what earlier runs have left, and say nothing."""

    def require(**changes):
        digits(**{"dataset": {"source": None}, **changes}).require_files(besides=("resources/fetched/",))

    (tmp_path / "there").touch()
    require(classifier={"weights": str(tmp_path / "there")})
    require(diffusion={"weights": "resources/fetched/weights/digits/diffusion.safetensors"})
    require(models={"source": "train"}, classifier={"weights": "nowhere"})
    require(readers={"noised": {"weights": {"0.5": "nowhere"}}})  # nothing reads it
    reading = {"methods": {"rs_trained": {"votes": [1]}}, "readers": {"noised": {"weights": {"0.5": "nowhere"}}}}
    for changes, key in (
        ({"diffusion": {"weights": "nowhere"}}, r"diffusion\.weights"),
        ({"classifier": {"file": "nowhere"}}, r"classifier\.file"),
        ({"paper_tables": "nowhere"}, "paper_tables"),
        ({"dataset": {"source": "nowhere"}}, r"dataset\.source"),
        (reading, 'readers\\.noised\\.weights, for "0\\.5",'),
    ):
        with pytest.raises(ConfigError, match=rf"^{key} is 'nowhere': there is no such file$"):
            require(**changes)


def test_labels_may_be_missing_and_numbers_written_otherwise(tmp_path):
    (tmp_path / "list.csv").write_text("number,label\n360.0,\n361,\n")
    assert digits(dataset={"list": str(tmp_path / "list.csv"), "images": None}).images == 2


def test_a_list_that_a_spreadsheet_wrote_is_read(tmp_path):
    (tmp_path / "list.csv").write_text("number,label\r\n360,6\r\n", encoding="utf-8-sig")
    assert digits(dataset={"list": str(tmp_path / "list.csv"), "images": None}).images == 1
    assert list(pd.read_csv(tmp_path / "list.csv")) == ["number", "label"], "jobs read it so"
