"""Inputs of the copies of torchgpipe between streams, which on the CPU are none."""

from __future__ import annotations

import torch


def streams(seed: int, dtype: torch.dtype, device: str) -> tuple[object, ...]:
    from torchgpipe.stream import CPUStream

    source = torch.Generator().manual_seed(seed)
    return (
        CPUStream,
        CPUStream,
        torch.randn(2, 3, generator=source, dtype=dtype),
        torch.randn(2, generator=source, dtype=dtype),
    )
