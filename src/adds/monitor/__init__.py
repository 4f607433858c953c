"""How a run will go, how it is going, and how it went."""
