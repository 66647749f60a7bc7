"""Freed memory stays with the process, as the next arrays need as much again."""

from __future__ import annotations

import torch

KEPT_BYTES = 1 << 24  # bytes: more than the arrays of one tile that are freed together


def keep_freed() -> None:
    """Lets glibc keep up to twice KEPT of freed memory.

    It gives back what is more than twice the largest block that it ever saw freed, and gets it
    again page by page for the next array: a tenth of the time of a comparison of some 10⁵ elements.
    Nothing is written here, so that no page is taken; other C libraries do not mind.
    """
    torch.empty(KEPT_BYTES, dtype=torch.uint8)
