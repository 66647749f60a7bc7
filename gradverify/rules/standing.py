"""A check in 16 bits that has no leg in float64 to stand on: what is said of it."""

from __future__ import annotations

from gradverify.model.result import Finding


def without_a_leg(dtype: str, refusal: str) -> Finding:
    """`refusal`: what the function says to float64."""
    message = (f"gradients in {dtype} are judged against float64, which the function refuses ({refusal.rstrip('.')}), and the spec names no "
               "`reference` in its place")
    return Finding("GV007", message, hint="let the function take float64, or name a `reference` in torch operations")
