"""Analysis of source text without importing it."""
