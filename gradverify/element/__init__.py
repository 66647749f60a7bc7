"""Floor 8: one element of one Subject, and why its verdict is what it is."""
