"""Print which samples on record the configuration can use, and what keeps the others from use."""

from bootstrap import configure_logging

from adds.experiment import Experiment
from adds.monitor.ledgers import why

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "why")
    print(why(Experiment.from_config(snakemake.params.config)), flush=True)
