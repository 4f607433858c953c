"""Record how ADDS spends its privacy budget over the steps, for every sigma."""

from typing import Any

import pandas as pd
from bootstrap import configure_logging

from adds.data.images import Images
from adds.models.pipeline import load_for_job
from adds.sampling.closeups import budget_by_step


def main(params: dict[str, Any], machine: dict[str, Any], inputs: Any, output: str) -> None:
    pipeline = load_for_job(params["networks"], machine, diffusion=inputs.diffusion, classifier=inputs.classifier)
    picture = next(iter(Images.read(inputs.images, inputs.pixels).part(0, 1)))
    tables = [
        budget_by_step(
            pipeline,
            picture,
            sigma=float(sigma),
            guidance_scale=scale,
            seed=params["seed"],
            trajectories=params["trajectories"],
        )
        for sigma, scale in params["scales"].items()
    ]
    pd.concat(tables, ignore_index=True).to_csv(output, index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "spend_budget")
    main(snakemake.params.budget, snakemake.params.machine, snakemake.input, snakemake.output[0])
