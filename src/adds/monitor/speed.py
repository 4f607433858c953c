"""How fast the networks are: as `snakemake check` measured them, or by the roofline of an assumed processor."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adds.experiment import Experiment
from adds.methods.base import Work
from adds.monitor.demand import TERA, demand_of_classifier, demand_of_diffusion

CHECK = "check.json"
"""What the check leaves, in the experiment's results."""


@dataclass(frozen=True)
class Speed:
    """Seconds that an evaluation takes at least and at most, of the diffusion model and of the classifier.

    Those of a classifier whose architecture is unknown until it has been obtained are None.
    """

    diffusion: tuple[float, float]
    classifier: tuple[float, float] | None
    origin: str

    def of(self, work: Work) -> tuple[float, float]:
        """Return the seconds of some work, at least and at most."""
        classifier = self.classifier or (0.0, 0.0)
        least, most = (
            work.diffusion * of_diffusion + work.classifier * of_classifier
            for of_diffusion, of_classifier in zip(self.diffusion, classifier, strict=True)
        )
        return least, most


def assumed_speed(experiment: Experiment) -> Speed:
    """Return the speed that the networks have on the processor that ``estimate`` describes."""
    config = experiment.config
    diffusion, classifier, known = config["diffusion"], config["classifier"], config["estimate"]
    on_gpu, unet = config["device"] != "cpu", diffusion["unet"]
    shape = (unet["in_channels"], unet["image_size"], unet["image_size"])
    demands = {
        "diffusion": demand_of_diffusion(diffusion, half=on_gpu and diffusion["half_precision"]),
        "classifier": demand_of_classifier(classifier, shape, half=on_gpu and classifier["half_precision"]),
    }
    best, worst = ({"tflops": known["tflops"][end], "bandwidth": known["bandwidth"][end]} for end in (1, 0))

    def seconds(network: str) -> tuple[float, float] | None:
        demand, batch = demands[network], config[network]["batch_size"]
        if demand is None:
            return None
        return demand.seconds(**best) / batch, demand.seconds(**worst) / batch

    of_diffusion, demand = seconds("diffusion"), demands["diffusion"]
    assert of_diffusion is not None
    assert demand is not None
    tflops = [demand.operations / diffusion["batch_size"] / one / TERA for one in reversed(of_diffusion)]
    return Speed(
        of_diffusion,
        seconds("classifier"),
        f"the networks' operations and bytes on {known['device']}, if that reaches {worst['tflops']:g} to "
        f"{best['tflops']:g} TFLOPS in products and moves {worst['bandwidth']:g} to {best['bandwidth']:g} TB/s between "
        f"them: {tflops[0]:.3g} to {tflops[1]:.3g} TFLOPS in all for the diffusion model",
    )


def what_is_checked(experiment: Experiment) -> dict[str, Any]:
    """Return what of a configuration the measured speed depends on."""
    machine = experiment.machine()
    return {
        "networks": experiment.networks(),
        "recipes": {name: experiment.recipe(name) for name in ("diffusion", "classifier")},
        **{key: machine[key] for key in ("device", "compile", "batch_size")},
    }


def checked_speed(experiment: Experiment, file: Path) -> Speed | None:
    """Return the speed that was measured by the check, where there was one of the same networks."""
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    if found["of"] != json.loads(json.dumps(what_is_checked(experiment))):
        return None
    seconds = {name: (1 / rate, 1 / rate) for name, rate in found["evaluations_per_second"].items()}
    return Speed(
        seconds["diffusion"],
        seconds.get("classifier", assumed_speed(experiment).classifier),
        f"the speed that `snakemake check` measured ({found['device']})",
    )
