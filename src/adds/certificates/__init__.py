"""From class counts to certificates; needs no torch."""
