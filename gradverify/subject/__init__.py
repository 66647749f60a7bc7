"""A Case becomes a Subject: the live function, its inputs as tensors, its calls counted."""
