"""The paper's claims, each with a test and a verdict; needs no torch."""
