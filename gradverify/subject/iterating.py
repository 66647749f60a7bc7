"""Does a function iterate until something is small? Then it reads numbers of its tensors, again and again, to decide when to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradverify.subject.differentiable import Differentiable

READS = 3       # of single numbers in one call: a scale or a threshold takes one or two, a loop one a step


class _Counting(TorchDispatchMode):     # type: ignore[no-untyped-call]
    """Counts how often a number is taken out of a tensor (`.item()`, `float(x)`, `if x > 0`)."""

    def __init__(self) -> None:
        super().__init__()     # type: ignore[no-untyped-call]
        self.reads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        self.reads += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def iterates(function: Differentiable, cotangents: Sequence[Tensor], elsewhere: Sequence[Tensor]) -> bool:
    """One forward and one backward, watched; and at other inputs, as an iteration that starts from the last solution has nothing to do at the same
    ones. What raises, or computes outside of torch, is not seen to iterate."""
    return _reads(lambda: function.once(cotangents)) >= READS or _reads(lambda: function.vjp_at(elsewhere, cotangents)) >= READS


def _reads(call: Callable[[], object]) -> int:
    counting = _Counting()
    with suppress(Exception), counting:
        call()
    return counting.reads
