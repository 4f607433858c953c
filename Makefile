# Two commands do everything: `make demo` runs the embedded experiment, `make test` the tests.
PYTHON ?= python3
VENV := .venv
# Another installer of the same pins can stand in for pip; docs/setup.md has one that takes torch's CPU build.
PIP_INSTALL ?= $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.installed
# What is checked: not what somebody has put beside it.
CODE := src scripts studies tests
REPORT := results/digits/report.html
CHECK_FORM := $(VENV)/bin/check-jsonschema
# The longest jobs come first, so that no core waits for one of them at the end. (Snakemake's other scheduler can't count so far.)
LONGEST := $(foreach sigma,0.8 0.6 0.4,$(foreach method,adds densepure,results/digits/counts/$(method)/sigma$(sigma)/votes5/00000.parquet))

.PHONY: help setup demo check-demo test test-fast test-slurm bench lint format clean

help:
	@echo "make demo    set up .venv and run the embedded experiment to $(REPORT)"
	@echo "make check-demo  compare what it left with the numbers in the documents"
	@echo "make test    set up .venv, check the code and run the tests"
	@echo "make test-fast  the tests that don't run the workflow"
	@echo "make bench   measure how fast it is, into docs/benchmark.md"
	@echo "make test-slurm  the embedded experiment on a Slurm cluster that it starts here; needs root and Debian"
	@echo "make setup   set up .venv only; then: source $(VENV)/bin/activate"
	@echo "make lint    static checks only"
	@echo "make format  format Python and Snakemake code"

$(INSTALLED): envs/requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --requirement envs/requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

setup: $(INSTALLED)

demo: $(INSTALLED)
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" snakemake --cores all --configfile config/digits.yaml --scheduler greedy --prioritize $(LONGEST) --logger adds
	@echo "Report: $(REPORT)"

check-demo: $(INSTALLED)
	$(VENV)/bin/python -m pytest -m demo tests/test_demo.py

lint: $(INSTALLED)
	$(VENV)/bin/ruff check $(CODE)
	$(VENV)/bin/ruff format --check $(CODE)
	$(VENV)/bin/mypy
	$(VENV)/bin/snakefmt --check Snakefile workflow
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" snakemake --lint --configfile config/digits.yaml
	$(CHECK_FORM) --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(CHECK_FORM) --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
	$(CHECK_FORM) --builtin-schema vendor.citation-file-format CITATION.cff
	$(CHECK_FORM) --schemafile tests/forms/catalog.schema.yaml .snakemake-workflow-catalog.yml
	$(CHECK_FORM) --schemafile tests/forms/pre-commit.schema.yaml .pre-commit-config.yaml

test-fast: $(INSTALLED)
	$(VENV)/bin/python -m pytest -n auto --dist loadgroup -m "not slow and not demo and not workflow"

test: lint
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest -n auto --dist loadgroup

bench: $(INSTALLED)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m studies.benchmark
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m studies.gpu_counts

test-slurm: $(INSTALLED)
	command -v slurmctld || apt-get install --yes --no-install-recommends munge slurmctld slurmd slurm-client
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest -m slurm tests/test_slurm.py

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix $(CODE)
	$(VENV)/bin/ruff format $(CODE)
	$(VENV)/bin/snakefmt Snakefile workflow

clean:
	rm -rf results/digits results/ledger resources/digits logs/digits benchmarks/digits
