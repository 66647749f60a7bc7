"""Floor 0: the values that pass between the stages. Frozen dataclasses, no torch, no numpy."""
