"""Ways to compare a Jacobian column by column."""
