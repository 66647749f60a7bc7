"""Derivatives with error bars from values of f along a line: steps, samples, Richardson
extrapolation, noise, kinks and ambiguity."""
