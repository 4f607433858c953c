"""What makes docs/: benchmark, simulated coverage, comparison of sequential bounds."""
