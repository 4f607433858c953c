"""Find out whether this machine is right for the configured run, and how fast it is; print a table and a verdict."""

import json
import logging
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from bootstrap import configure_logging

from adds.experiment import Experiment
from adds.machine.devices import Device, claim_device
from adds.machine.gpus import has_gpu
from adds.monitor.machine_check import (
    TWO_JOBS,
    Check,
    Finding,
    Job,
    Networks,
    attempted,
    compare_noise,
    describe_device,
    share_out,
    state_bytes,
    table,
)
from adds.monitor.speed import CHECK, what_is_checked

logger = logging.getLogger("adds.check")


def check_networks(experiment: Experiment, machine: dict[str, Any], device: torch.device) -> Check:
    folders = {name: Path(experiment.folder(name)) for name in ("diffusion", "classifier")}
    networks = Networks({name: experiment.config[name] for name in folders}, folders, device)
    samples = max(machine["chunk_size"], machine["at_once"])
    each = max(state_bytes(one.method, one.votes, experiment.options(one.method)) for one in experiment.settings())
    job = Job(samples, math.prod(networks.shape), each)
    check = Check(networks, machine["batch_size"], job, machine["jobs_per_gpu"])
    check.run(Path(experiment.folder("compiled")), asked=machine["compile"])
    return check


def tell(text: str) -> None:
    """Print, and leave it in the log too: of a job on a cluster's node nothing else is seen."""
    print(text, flush=True)
    logger.debug("\n%s", text.strip())


def main(experiment: Experiment, machine: dict[str, Any], results: Path) -> bool:
    torch.set_num_threads(machine["threads"])
    # Before this process has a GPU.
    shares = machine["device"] != "cpu" and has_gpu()
    jobs = attempted(TWO_JOBS, lambda: [share_out(machine["jobs_per_gpu"])]) if shares else []
    claimed: list[Device] = []

    def claim() -> list[Finding]:
        claimed.append(claim_device(machine))
        return [describe_device(claimed[0])]

    findings, rates = attempted("device", claim), {}
    if claimed:
        findings += jobs  # without a GPU that torch can use they had nothing
        device = torch.device(claimed[0].kind)
        findings += attempted("random numbers", lambda: compare_noise(device))
        check = check_networks(experiment, machine, device)
        findings += check.findings
        rates = check.rates
    tell(table(findings))
    problems = [finding for finding in findings if finding.verdict == "PROBLEM"]
    results.mkdir(parents=True, exist_ok=True)
    if "diffusion" in rates:
        record = {"of": what_is_checked(experiment), "device": claimed[0].name, "evaluations_per_second": rates}
        text = json.dumps({**record, "findings": [asdict(finding) for finding in findings]}, indent=2)
        (results / CHECK).write_text(text + "\n")
    if problems:
        tell(f"\nNOT READY for {experiment.name}: {'; '.join(f'{one.what}: {one.found}' for one in problems)}")
        return False
    noted = " (mind the notes)" if any(finding.verdict == "note" for finding in findings) else ""
    tell(f"\nReady for {experiment.name}{noted}. `snakemake estimate` takes its speed from {results / CHECK} now.")
    return True


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "check")
    chosen = Experiment.from_config(snakemake.params.config)
    sys.exit(0 if main(chosen, snakemake.params.machine, Path(chosen.results)) else 1)
