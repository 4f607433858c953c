"""Get the diffusion model's checkpoint: from a local copy, or from its address."""

from pathlib import Path
from typing import Any

from bootstrap import configure_logging

from adds.data.download import Expected, fetch, use_local
from adds.models.weights import describe_model
from adds.registry import DIFFUSION_HINT


def main(recipe: dict[str, Any], weights: Path) -> None:
    download = recipe.get("download") or {"urls": []}
    expected = Expected.from_settings(download)
    if "weights" in recipe:
        use_local(recipe["weights"], weights, expected)
    else:
        fetch(download["urls"], weights, expected, hint=DIFFUSION_HINT)
    describe_model(weights.parent, recipe)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "obtain_diffusion")
    main(snakemake.params.recipe, Path(snakemake.output.weights))
