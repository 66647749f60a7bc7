"""A function of tensors as a map Rⁿ → Rᵐ around one point: its coordinates and buffers, calls and
their time, precision per column."""
