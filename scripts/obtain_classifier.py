"""Get the classifier: from the hub, or from files of the user's own."""

from pathlib import Path

from bootstrap import configure_logging

from adds.models.pipeline import classifier_kind

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "obtain_classifier")
    recipe = snakemake.params.recipe
    classifier_kind(recipe["kind"]).obtain(recipe, Path(snakemake.output.weights).parent)
