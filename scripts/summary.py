"""Write what a finished run has to tell."""

from pathlib import Path

from bootstrap import configure_logging

from adds.monitor.summary import summary

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "summary")
    output, told = Path(snakemake.output[0]), snakemake.params.told
    claims = snakemake.input.get("claims")
    text = summary(
        output.parent,
        Path(told["logs"]),
        Path(told["benchmarks"]),
        told["places"],
        provenance=Path(snakemake.input.provenance),
        claims=Path(claims) if claims else None,
        partial_of=told["partial_of"],
    )
    output.write_text(text)
