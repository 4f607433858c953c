"""Measure how sharp denoised images are, and how far from the original."""

from typing import Any

import pandas as pd
from bootstrap import configure_logging

from adds.data.images import Images
from adds.models.pipeline import load_for_job
from adds.sampling.closeups import detail_of


def main(params: dict[str, Any], machine: dict[str, Any], inputs: Any, output: str) -> None:
    files = {"diffusion": inputs.diffusion, "classifier": inputs.classifier}
    pipeline = load_for_job(params["networks"], machine, **files, compiled=inputs.compiled)
    images = Images.read(inputs.images, inputs.pixels).part(0, params["images"])
    parts = [
        detail_of(
            pipeline,
            images,
            params["methods"],
            sigma=float(sigma),
            guidance_scale=scale,
            seed=params["seed"],
            samples=params["samples"],
        )
        for sigma, scale in params["scales"].items()
    ]
    pd.concat(parts, ignore_index=True).to_parquet(output, index=False)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "detail")
    main(snakemake.params.detail, snakemake.params.machine, snakemake.input, snakemake.output[0])
