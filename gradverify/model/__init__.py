"""The values that pass between the stages. Frozen dataclasses, no torch, no numpy."""
