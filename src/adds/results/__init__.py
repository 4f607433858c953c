"""From counts to what the paper reports; needs no torch."""
