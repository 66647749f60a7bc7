"""Plain functions for the numerics: values and VJPs by torch, calls and tensor sizes counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Plain:
    """A `numerics.derivative.Function` of a torch callable; `damage` changes what its backward gives."""

    def __init__(self, call: Callable[..., Any], *inputs: Tensor, damage: Callable[[int, Tensor | None], Tensor | None] | None = None) -> None:
        self.inputs = tuple(x.detach().clone() for x in inputs)
        self.forwards = self.backwards = 0
        self._call, self._damage = call, damage

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        self.forwards += 1
        outputs = self._call(*inputs)
        return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]

    def vjp(self, cotangents: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        self.backwards += 1
        leaves = [x.clone().requires_grad_() for x in self.inputs]
        outputs = self._call(*leaves)
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        wanted = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if v is not None]
        gradients = torch.autograd.grad([y for y, _ in wanted], leaves, [v for _, v in wanted], allow_unused=True)
        return tuple(gradients if self._damage is None else map(self._damage, range(len(gradients)), gradients))


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that any operator inside returned."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.numel() * tensor.element_size())
        return result


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
