"""A check whose gradients are damaged on purpose, to learn which damage it would have let
through."""
