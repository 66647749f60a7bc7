"""The buffers of a module in training that its forward updates and reads, such as the power iteration of spectral norm: where they come to rest.

A backward that treats them as constants is right there, and there only: in training they follow the parameters, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from gradverify.subject.snapshot import alike, same
from gradverify.torch_private import buffers_of

MOST = 512      # calls: measured, a power iteration takes 70 with singular values 10 % apart, 350 with 2 %, 460 with 1.5 %
EARLY = 32      # calls by which what will come to rest has come nearer: a counter never does
NEARER = 0.9
SLOWLY = 2.0**-7    # of the outputs: what moves by less a call may come to rest some day (singular values that lie closer than 1 %)
LEAST = 8       # more calls once the outputs stand still, and as many as it took: buffers have the error's square root to go
OFF = 2.0**-7   # of a number: far above rounding, near enough to be defined
STILL = 4       # roundings of the output's type that its largest element still moves

State = dict[str, Tensor]


class Restless(Exception):      # noqa: N818 - no fault of anybody's
    """The buffers come to rest, but so slowly that nobody can wait for it."""


def at_rest(module: torch.nn.Module, forward: Callable[[], Sequence[Tensor]], start: Mapping[str, Tensor]) -> State | None:
    """The buffers at rest, from `start` on; None where forward leaves them alone, where they do not move its outputs, or where they never rest.

    `forward` calls the module with its own buffers, which are afterwards what they were. Raises Restless.
    """
    places = [(part, name, buffer, buffer.detach().clone()) for part in module.modules()
              for name, buffer in buffers_of(part).items() if buffer is not None]
    try:
        for name, buffer in module.named_buffers():
            _write(buffer, start[name])
        return _state(module) if _rests(module, forward, start) else None
    except Restless:
        raise
    except Exception:       # it will be said of the base call, if it is to be said
        return None
    finally:
        for part, name, buffer, value in places:
            _write(buffer, value)
            buffers_of(part)[name] = buffer


def _rests(module: torch.nn.Module, forward: Callable[[], Sequence[Tensor]], start: Mapping[str, Tensor]) -> bool:
    last, first, moved, after = forward(), 0.0, 0.0, _state(module)
    if all(same(buffer, start[name]) for name, buffer in after.items()) or alike(last, _beside(module, forward)):
        return False
    for name, buffer in module.named_buffers():
        _write(buffer, after[name])
    for call in range(1, MOST):
        now = forward()
        moved = max((float((a - b).abs().max()) for a, b in zip(last, now, strict=True) if a.numel()), default=0.0)
        if all(_stands_still(a, b) for a, b in zip(last, now, strict=True)):
            for _ in range(max(call, LEAST)):
                forward()
            return True
        first = first or moved
        if call == EARLY and not moved <= NEARER * first:
            return _never(now, moved)
        last = now
    return _never(last, moved)


def _never(outputs: Sequence[Tensor], moved: float) -> bool:
    """False where no one can think that this comes to rest. Raises Restless where it may, much later."""
    if 0 < moved <= SLOWLY * max((float(y.abs().max()) for y in outputs if y.numel()), default=0.0):
        raise Restless
    return False


def _beside(module: torch.nn.Module, forward: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
    """The outputs with every second number of the buffers a little off: the same where forward does not read them (batch statistics)."""
    for buffer in module.buffers():
        if buffer.is_floating_point() or buffer.is_complex():
            off = torch.arange(buffer.numel(), device=buffer.device).reshape(buffer.shape) % 2
            _write(buffer, buffer.detach() * (1 + OFF * off))
    return forward()


def _stands_still(before: Tensor, now: Tensor) -> bool:
    if not now.numel() or same(before, now):
        return True
    return float((now - before).abs().max()) <= STILL * torch.finfo(now.dtype).eps * float(now.abs().max())


def _state(module: torch.nn.Module) -> State:
    return {name: buffer.detach().clone() for name, buffer in module.named_buffers()}


def _write(buffer: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        buffer.detach().copy_(value)
