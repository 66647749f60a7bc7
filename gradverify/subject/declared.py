"""What the custom Functions of a graph say that they can do."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gradverify.torch_private import generated_for, has_kernel

BATCHED = "FuncTorchBatched"    # the dispatch key of register_vmap


def lacking(classes: Sequence[type], *names: str) -> str | None:
    """The first of these Functions that declares none of `names` (jvp; vmap, generate_vmap_rule) of its own. The one behind a registered operator
    declares a vmap rule where the operator has one."""
    plain = torch.autograd.Function
    return next((_shown(cls) for cls in classes if all(getattr(cls, name) is getattr(plain, name) for name in names)
                 and not ("vmap" in names and _registers_vmap(cls))), None)


def _registers_vmap(cls: type) -> bool:
    generated = generated_for(cls)
    return generated is not None and has_kernel(generated[0], BATCHED)


def _shown(cls: type) -> str:
    generated = generated_for(cls)
    return cls.__name__ if generated is None else generated[0]
