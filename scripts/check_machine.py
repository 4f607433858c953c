"""Find out whether this machine is right for the configured run, and how fast it is; print a table and a verdict."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from bootstrap import configure_logging

from adds.experiment import Experiment
from adds.machine.devices import claim_device
from adds.monitor.machine_check import Networks, check_networks, compare_noise, describe_device, share_out, table
from adds.monitor.speed import CHECK, what_is_checked


def main(experiment: Experiment, machine: dict[str, Any], results: Path) -> bool:
    torch.set_num_threads(machine["threads"])
    findings = [share_out()]  # before this process takes a GPU itself
    claimed = claim_device(machine)
    device = torch.device(claimed.kind)
    findings = [describe_device(claimed), *findings, *compare_noise(device)]
    folders = {name: Path(experiment.folder(name)) for name in ("diffusion", "classifier")}
    settings = {name: experiment.config[name] for name in folders}
    compiled = Path(experiment.folder("compiled"))
    found, rates = check_networks(
        Networks(settings, folders, device), machine["batch_size"], compiled, compile_=machine["compile"]
    )
    findings += found
    print(table(findings), flush=True)
    problems = [finding for finding in findings if finding.verdict == "PROBLEM"]
    results.mkdir(parents=True, exist_ok=True)
    record = {"of": what_is_checked(experiment), "device": claimed.name, "evaluations_per_second": rates}
    text = json.dumps({**record, "findings": [asdict(finding) for finding in findings]}, indent=2)
    (results / CHECK).write_text(text + "\n")
    if problems:
        print(f"\nNOT READY for {experiment.name}: {'; '.join(f'{one.what}: {one.found}' for one in problems)}")
        return False
    print(f"\nReady for {experiment.name}. `snakemake estimate` takes its speed from {results / CHECK} now.")
    return True


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "check")
    chosen = Experiment.from_config(snakemake.params.config)
    sys.exit(0 if main(chosen, snakemake.params.machine, Path(chosen.results)) else 1)
