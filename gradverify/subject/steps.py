"""The operations of one forward, with the constants that entered each, and the names of those that are no plain functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gradverify.subject.snapshot import same
from gradverify.torch_private import TENSOR_HOOKS

READS = frozenset({"numpy", "__array__", "item", "tolist", "data_ptr", "untyped_storage", "storage", "__float__", "__int__", "__index__",
                   "__complex__", "__bool__", "__dlpack__"})
"""Ways to take numbers out of a tensor."""
STEPS = frozenset({"round", "round_", "floor", "floor_", "ceil", "ceil_", "trunc", "trunc_", "fix", "fix_", "sign", "sign_", "sgn", "sgn_",
                   "heaviside", "floor_divide", "__floordiv__", "div", "div_", "divide", "divide_"})
"""Operations that are, or may be, constant by steps: what they give is a constant of the graph, though torch gives it one (of zeros)."""
REFUSED = frozenset({"fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine", "gumbel_softmax", "frac", "frac_", "fmod", "remainder",
                     "__mod__", "register_hook", "register_post_accumulate_grad_hook", "__set__", "grad_fn", "set_", TENSOR_HOOKS[0]})
"""Whose derivative is torch's choice, or which change the graph or a gradient by hand."""
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
IN_PLACE = frozenset(f"__i{name}__" for name in OPERATORS)
Place = tuple[int, int]     # of a constant: its step, and its place in it


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the graph: its name, and the constants that entered it, tensors as they were then and numbers."""

    name: str
    constants: tuple[Any, ...]
    origins: tuple[str, ...]


def differing(one: Sequence[Step], other: Sequence[Step], idle: frozenset[Place] = frozenset()) -> str | None:
    """Where the same call at other inputs had other constants, or did other things: what carried the dependence; None where nowhere.
    `idle`: constants that may differ."""
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if a.name != b.name or len(a.constants) != len(b.constants):
            return f"a branch: {a.name} here, {b.name} beside"
        for place, (x, y, origin) in enumerate(zip(a.constants, b.constants, a.origins, strict=True)):
            if (step, place) not in idle and not (same(x, y) if isinstance(x, Tensor) and isinstance(y, Tensor) else x == y):
                return origin
    return None if len(one) == len(other) else "a loop of another length"
