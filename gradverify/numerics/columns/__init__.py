"""Ways to walk the columns of a Jacobian."""
