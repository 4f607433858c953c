"""Put the report together: one page that opens on the result."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from bootstrap import configure_logging

from adds.results.report import report


def main(params: dict[str, Any], inputs: Any, output: str) -> None:
    claims = inputs.get("claims")
    text = report(
        Path(output).parent,
        **params,
        claims=pd.read_csv(claims) if claims else None,
        provenance=json.loads(Path(inputs.provenance).read_text()),
        config=Path(inputs.config).read_text(),
    )
    Path(output).write_text(text)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "report")
    main(snakemake.params.report, snakemake.input, snakemake.output[0])
