"""Print what the configured run costs, before it is begun."""

from pathlib import Path

import pandas as pd
from bootstrap import configure_logging

from adds.experiment import Experiment
from adds.monitor.estimate import estimate, read_counts, sequential_summary, summary
from adds.monitor.speed import CHECK, checked_speed

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "estimate")
    experiment = Experiment.from_config(snakemake.params.config)
    counts = read_counts(sorted(Path(f"results/{experiment.name}/counts").glob("*/sigma*/votes*/*.parquet")))
    table = estimate(experiment, counts, checked_speed(experiment, Path(experiment.results) / CHECK))
    print(summary(table, experiment), flush=True)
    if experiment.config["sampling"]["mode"] == "sequential":
        told = experiment.config["paper_tables"]
        paper = pd.read_csv(told) if told else pd.DataFrame()
        print(f"\n{sequential_summary(experiment, table, counts, paper)}", flush=True)
