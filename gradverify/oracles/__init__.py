"""Anything that yields a value with a bar, to hold the analytic gradient against."""
