"""Write the resolved configuration, and what made the results."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from adds.machine.logs import configure_logging
from adds.monitor.provenance import provenance


def main(config: dict[str, Any], inputs: Any, output: Any) -> None:
    found = provenance(
        pd.read_parquet(inputs.certificates), [Path(path) for path in inputs.models], [Path(inputs.list)]
    )
    Path(output.provenance).write_text(json.dumps(found, indent=2) + "\n")
    Path(output.config).write_text(yaml.safe_dump(config, sort_keys=False))


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "provenance")
    main(snakemake.params.config, snakemake.input, snakemake.output)
