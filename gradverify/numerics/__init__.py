"""Finite differences, error bars, verdicts. Knows tensors and plain callables; no spec, rule or
Function."""
