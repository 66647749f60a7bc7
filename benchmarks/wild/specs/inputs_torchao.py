"""Inputs of the linear layer of torchao that multiplies in 8 bits where it is told to: here
nowhere."""

from __future__ import annotations

import torch


def linear(seed: int, dtype: torch.dtype, device: str) -> tuple[object, ...]:
    from torchao.prototype.quantized_training.int8_mixed_precision import (
        Int8MixedPrecisionTrainingConfig,
    )

    source = torch.Generator().manual_seed(seed)
    x, weight, bias = (
        torch.randn(*shape, generator=source, dtype=dtype) for shape in ((2, 2, 3), (4, 3), (4,))
    )
    return (
        x,
        weight,
        bias,
        Int8MixedPrecisionTrainingConfig(output=False, grad_input=False, grad_weight=False),
    )
