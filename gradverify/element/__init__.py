"""One element of one Subject, and why its verdict is what it is."""
