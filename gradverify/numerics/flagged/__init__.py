"""Columns, rows and blocks of the Jacobian that a screen flagged: followed to the elements in
them."""
