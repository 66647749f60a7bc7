"""A square that runs on the default CUDA stream, whichever is the current one, as a kernel does that is launched without a stream.

Under `torch.cuda.stream` it reads its input before that was written, and its result may be read before it is there. Repair: let the two streams wait
for each other, or stay on the current one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x²`; nobody waits for anybody."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        with torch.cuda.stream(torch.cuda.default_stream(x.device) if x.is_cuda else None):
            return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * (2 * x)


class Right(Faulty):
    """`x²`; the default stream waits for the current one, and the current one for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if not x.is_cuda:
            return Faulty.forward(ctx, x)
        here, there = torch.cuda.current_stream(x.device), torch.cuda.default_stream(x.device)
        there.wait_stream(here)
        y = Faulty.forward(ctx, x)
        here.wait_stream(there)
        for tensor, stream in ((x, there), (y, here)):      # their memory is not given away while the other stream is at work
            tensor.record_stream(stream)
        return y
