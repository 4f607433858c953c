"""Write what a finished run has to tell."""

from pathlib import Path

from bootstrap import configure_logging

from adds.monitor.summary import summary

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "summary")
    output, folders = Path(snakemake.output[0]), snakemake.params.folders
    claims = snakemake.input.get("claims")
    text = summary(
        output.parent,
        Path(folders["logs"]),
        Path(folders["benchmarks"]),
        folders["pages"],
        provenance=Path(snakemake.input.provenance),
        claims=Path(claims) if claims else None,
    )
    output.write_text(text)
