"""Leave what the run is going to do where `python -m adds.monitor.status` finds it."""

import json
import logging
from pathlib import Path
from typing import Any

from bootstrap import configure_logging

from adds.monitor.estimate import evaluations_per_sample
from adds.monitor.expected import padding_warning

logger = logging.getLogger("adds.plan")


def main(plan: dict[str, Any], machine: dict[str, Any], output: Path) -> None:
    if warning := padding_warning(plan, machine):
        logger.warning(warning)
    for setting in plan["settings"]:
        setting["evaluations"] = evaluations_per_sample(setting, plan["chain"])
    output.write_text(json.dumps(plan) + "\n")


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "plan")
    main(snakemake.params.plan, snakemake.params.machine, Path(snakemake.output[0]))
