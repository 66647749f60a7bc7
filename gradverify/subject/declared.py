"""What the custom Functions of a graph say that they can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradverify.torch_private import generated_for, has_kernel

BATCHED = "FuncTorchBatched"    # the dispatch key of register_vmap


def lacking(classes: Sequence[type], *names: str) -> str | None:
    """The first of these Functions that declares none of `names` (jvp; vmap, generate_vmap_rule) of its own. The one behind a registered operator
    declares a vmap rule where the operator has one."""
    plain = torch.autograd.Function
    return next((shown_name(cls) for cls in classes if all(getattr(cls, name) is getattr(plain, name) for name in names)
                 and not ("vmap" in names and _registers_vmap(cls))), None)


def _registers_vmap(cls: type) -> bool:
    generated = generated_for(cls)
    return generated is not None and has_kernel(generated[0], BATCHED)


def registered_backward(cls: type) -> Any:
    """What was handed to `register_autograd`, of a Function that torch generated from it; None of any other."""
    generated = generated_for(cls)
    return generated[1] if generated else None


def shown_name(cls: type) -> str:
    """The name of the Function, or of the operator that torch generated it for."""
    generated = generated_for(cls)
    return generated[0] if generated else cls.__name__
