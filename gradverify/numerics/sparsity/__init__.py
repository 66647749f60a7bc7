"""Sparsity of a black-box Jacobian: which outputs move with which inputs, found by perturbing
slices, and which columns may be perturbed together."""
