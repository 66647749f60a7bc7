"""What the custom Functions of a graph say that they can do."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def lacking(classes: Sequence[type], *names: str) -> str | None:
    """The first of these Functions that declares none of `names` (jvp; vmap, generate_vmap_rule) of its own."""
    plain = torch.autograd.Function
    return next((cls.__name__ for cls in classes if all(getattr(cls, name) is getattr(plain, name) for name in names)), None)
