"""One module for every figure."""
