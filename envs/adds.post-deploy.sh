#!/usr/bin/env bash
# Snakemake runs this in the new conda environment, from the folder of the workflow.
set -euo pipefail
python -m pip install --no-deps --no-build-isolation --editable .
