"""What source text tells without importing it."""
