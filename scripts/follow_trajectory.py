"""Follow one trajectory of ADDS through all its steps, for the figure of the pipeline."""

from typing import Any

import numpy as np
import torch
from bootstrap import configure_logging

from adds.data.images import Images, class_names
from adds.diffusion.schedule import to_model
from adds.models.pipeline import load_for_job
from adds.sampling.closeups import trajectory


def main(params: dict[str, Any], machine: dict[str, Any], inputs: Any, output: str) -> None:
    files = {"diffusion": inputs.diffusion, "classifier": inputs.classifier}
    pipeline = load_for_job(params["networks"], machine, **files, batch_size=1)
    images = Images.read(inputs.images, inputs.pixels)
    picture = next(iter(images.part(0, 1)))
    facts = {key: params[key] for key in ("sigma", "guidance_scale", "seed")}
    pictures, steps = trajectory(pipeline, picture, **facts)
    seen = to_model(torch.as_tensor(pictures[-1:, 1]).to(pipeline.denoiser.device))
    predicted = int(pipeline.classifier.predict(seen)[0])
    np.savez(
        output,
        pictures=pictures,
        image=picture.pixels,
        number=picture.number,
        sigma=params["sigma"],
        truth=picture.class_name,
        prediction=class_names(inputs.get("classes"), images.table).get(predicted, str(predicted)),
        **{name: steps[name].to_numpy() for name in steps},
    )


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "follow_trajectory")
    main(snakemake.params.trajectory, snakemake.params.machine, snakemake.input, snakemake.output[0])
