"""Probing: the Jacobian multiplied by seed matrices from either side, WᵀJV, so that a number stands
for a column, a row or a whole block of it."""
