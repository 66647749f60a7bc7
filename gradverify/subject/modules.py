"""A module in the check's precision: real numbers stay real and complex ones complex, so that no part of them is dropped."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor

COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64, torch.complex128: torch.complex128, torch.complex64: torch.complex64,
           torch.float16: torch.complex32, torch.bfloat16: torch.complex64}
"""The complex type of a check's dtype."""

REAL = {torch.complex128: torch.float64, torch.complex64: torch.float32}
"""The real type of a complex one."""


def cast(module: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
    """The module itself, its floating and complex parameters and buffers in the precision of `dtype`, all of it on `device`.

    Complex ones stay complex. A complex `dtype` makes real ones complex too, unless the module has complex ones itself: then it knows which
    are which.
    """
    mixed = any(tensor.is_complex() for tensor in chain(module.parameters(), module.buffers()))
    real = REAL.get(dtype, dtype) if mixed else dtype

    def moved(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(device=device, dtype=COMPLEX[dtype])
        return tensor.to(device=device, dtype=real) if tensor.is_floating_point() else tensor.to(device=device)

    module._apply(moved)  # type: ignore[no-untyped-call]
    return module
