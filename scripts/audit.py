"""Test on the experiment's own networks that guided steps tell of an image what certificates assume, and no more."""

import logging
import sys
from typing import Any

from bootstrap import configure_logging

from adds.data.images import Images
from adds.models.pipeline import load_for_job
from adds.monitor.audit import IMAGES, TRAJECTORIES, Audit, recovered_errors

log = logging.getLogger("adds")


def main(params: dict[str, Any], machine: dict[str, Any], inputs: Any) -> bool:
    if not params["scales"]:
        print("Nothing to audit: none of the methods is guided.", flush=True)
        return True
    pipeline = load_for_job(params["networks"], machine, diffusion=inputs.diffusion, classifier=inputs.classifier)
    pictures = list(Images.read(inputs.images, inputs.pixels).part(0, IMAGES))
    audit = Audit.of(
        recovered_errors(
            pipeline,
            pictures,
            sigma=float(sigma),
            guidance_scale=scale,
            seed=params["seed"],
            trajectories=TRAJECTORIES,
        )
        for sigma, scale in params["scales"].items()
    )
    print(audit.report(), flush=True)
    for one in audit.failures:
        log.error("%s at sigma %s: statistic %.6g, p = %.3g", one.name, one.sigma, one.statistic, one.p)
    return not audit.failures


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "audit")
    sys.exit(0 if main(snakemake.params.audit, snakemake.params.machine, snakemake.input) else 1)
