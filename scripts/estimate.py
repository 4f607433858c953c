"""Print what the configured run costs, before it is begun."""

from pathlib import Path

from adds.experiment import Experiment
from adds.machine.logs import configure_logging
from adds.monitor.estimate import estimate, summary

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "estimate")
    experiment = Experiment.from_config(snakemake.params.config)
    counts = sorted(Path(f"results/{experiment.name}/counts").glob("*/sigma*/votes*/*.parquet"))
    print(summary(estimate(experiment, counts), experiment), flush=True)
