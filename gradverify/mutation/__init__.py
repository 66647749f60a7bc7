"""Run a check on gradients that are damaged on purpose, to learn which damage it would miss."""
