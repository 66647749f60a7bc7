"""Forward and backward on a CUDA stream of their own, while that one or the default one is busy.

Work on the current stream comes in its turn. Work on another one that does not wait reads before the inputs are there, and one that is not waited
for writes after its result was read: both get what stood in the memory before, which is of a call at other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients, copied
from gradverify.subject.failure import blamed
from gradverify.subject.on_cuda import finished
from gradverify.subject.subject import Subject
from gradverify.torch_private import cuda_sleep

Busy = Literal["own", "default"]
COUNTED = 1 << 20           # cycles of the wait by which the device's clock is read: half a millisecond
LONGER = 8                  # times a whole call that was waited for: as long is the stream busy while one is launched
SHORTEST, LONGEST = 1 << 24, 1 << 31    # cycles: ten milliseconds, for a host that is interrupted; a second
OTHER = -3.0                # times the cotangents, in the call before


class Beside:
    """Calls of a subject on one CUDA device, each right after one at `others`. `rested`: where in a call the busy stream had come to rest, so that
    what follows is not seen; `blocking`: it is never busy, as every launch is waited for."""

    def __init__(self, subject: Subject, others: Sequence[Tensor], busy: Busy | None) -> None:
        self._subject, self._others, self._busy = subject, others, busy
        self._on = subject.on
        self.rested: set[str] = set()
        self.blocking = False

    def once(self, function: Differentiable, v: Sequence[Tensor]) -> tuple[list[Tensor], Gradients]:
        """Outputs of one forward and its gradients. Nobody busy: on the default stream, each call waited for. Raises UserCodeError."""
        finished(self._on)
        default = torch.cuda.default_stream(self._on[0])
        own = torch.cuda.Stream(self._on[0]) if self._busy else default  # type: ignore[no-untyped-call]
        with torch.cuda.stream(own):
            leaves = self._subject.leaves()
            start = perf_counter()
            self._called(function, leaves, self._others, [OTHER * each for each in v], None, 0)
            finished(self._on)
            if self._busy is None:
                return self._called(function, leaves, self._subject.inputs, v, None, 0)
            cycles = self._cycles(perf_counter() - start)
            try:
                self._subject.on = ()       # its calls are not waited for
                found = self._called(function, leaves, self._subject.inputs, v, own if self._busy == "own" else default, cycles)
                with blamed("GV003", "backward"):
                    finished(self._on)
                return found
            finally:
                self._subject.on = self._on

    def _called(self, function: Differentiable, leaves: Sequence[Tensor], inputs: Sequence[Tensor], v: Sequence[Tensor],
                busy: torch.cuda.Stream | None, cycles: int) -> tuple[list[Tensor], Gradients]:
        """At these inputs, which are written into the memory of the leaves when the stream has done with `cycles`."""
        self._sleep(busy, cycles)
        self.blocking = self.blocking or _rests(busy)
        with torch.no_grad():
            for leaf, x in zip(leaves, inputs, strict=True):
                leaf.copy_(x)
        graph = function.graph(leaves)
        outputs = [y.detach().clone() for y in function.of(graph)]
        self.rested |= {"forward"} if _rests(busy) else set()
        self._sleep(busy, cycles)
        gradients = copied(function.gradients(graph, [each.to(y) for each, y in zip(v, outputs, strict=True)]))
        self.rested |= {"backward"} if _rests(busy) else set()
        return outputs, gradients

    @staticmethod
    def _sleep(stream: torch.cuda.Stream | None, cycles: int) -> None:
        if stream is not None:
            with torch.cuda.stream(stream):
                cuda_sleep(cycles)

    def _cycles(self, seconds: float) -> int:
        """What the device counts while a call of so many seconds is launched, with room to spare."""
        for _ in range(2):      # the first one loads it
            start = perf_counter()
            cuda_sleep(COUNTED)
            finished(self._on)
            rate = COUNTED / (perf_counter() - start)
        return int(min(max(LONGER * seconds * rate, SHORTEST), LONGEST))


def _rests(stream: torch.cuda.Stream | None) -> bool:
    """Has it nothing left to do?"""
    return stream is not None and stream.query()
