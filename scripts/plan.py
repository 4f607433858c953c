"""Leave what the run is going to do where `python -m adds.monitor.status` finds it."""

import json
from pathlib import Path

from adds.machine.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "plan")
    Path(snakemake.output[0]).write_text(json.dumps(snakemake.params.plan) + "\n")
