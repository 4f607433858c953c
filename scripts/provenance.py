"""Write the resolved configuration, what made the results, and how their samples were certified otherwise."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from bootstrap import configure_logging

from adds.experiment import Experiment
from adds.monitor.looks import look_of, others
from adds.monitor.provenance import provenance


def main(config: dict[str, Any], inputs: Any, output: Any, scripts: str) -> None:
    certified = pd.read_parquet(inputs.certificates)
    found = provenance(certified, [Path(path) for path in inputs.models], [Path(inputs.list)])
    if "://" in scripts:  # an address, with its tag: no folder has a commit
        found["commit"] = scripts
    found["other_looks"] = others(look_of(Experiment.from_config(config).look(), certified))
    Path(output.provenance).write_text(json.dumps(found, indent=2) + "\n")
    Path(output.config).write_text(yaml.safe_dump(config, sort_keys=False))


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "provenance")
    main(snakemake.params.config, snakemake.input, snakemake.output, snakemake.scriptdir)
