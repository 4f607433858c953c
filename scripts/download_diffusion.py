"""Get the diffusion model's checkpoint: from a local copy, or from its address."""

from adds.descriptions import describe_model
from adds.fetch import Expected, fetch, use_local
from adds.logs import configure_logging

HINT = "Set diffusion.checkpoint to a copy of your own, or diffusion.download.urls to a mirror."

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_diffusion")
    params, output = snakemake.params, snakemake.output
    expected = Expected.from_settings(params.download)
    if snakemake.input:
        use_local(snakemake.input[0], output.weights, expected)
    else:
        fetch(params.download["urls"], output.weights, expected, hint=HINT)
    describe_model(output.weights, {}, output.description)
