"""Denoise a few images with every method, for the figure."""

from typing import Any

import numpy as np
from bootstrap import configure_logging

from adds.data.images import Images, class_names
from adds.models.pipeline import load_for_job
from adds.sampling.closeups import denoised_pictures


def main(params: dict[str, Any], machine: dict[str, Any], inputs: Any, sigma: float, output: str) -> None:
    files = {"diffusion": inputs.diffusion, "classifier": inputs.classifier}
    pipeline = load_for_job(params["networks"], machine, **files, batch_size=1)  # one sample at a time
    images = Images.read(inputs.images, inputs.pixels)
    pictures, rows = denoised_pictures(
        pipeline,
        images.part(0, params["images"]).of_different_classes(params["shown"]),
        params["methods"],
        sigma=sigma,
        guidance_scale=params["guidance_scale"],
        seed=params["seed"],
        classes=class_names(inputs.get("classes"), images.table),
    )
    np.savez(output, pictures=pictures, **{name: rows[name].to_numpy(str) for name in rows})


if __name__ == "__main__":
    configure_logging(snakemake.log[0], f"denoise sigma={snakemake.wildcards.sigma}")
    main(
        snakemake.params.denoise,
        snakemake.params.machine,
        snakemake.input,
        float(snakemake.wildcards.sigma),
        snakemake.output[0],
    )
