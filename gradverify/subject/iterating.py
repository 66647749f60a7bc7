"""Does a function iterate until something is small? Then it reads numbers of its tensors, again and again, to decide when to stop; and may never."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from torch import Tensor

from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import Spent
from gradverify.subject.own_code import DispatchMode, wrapped
from gradverify.torch_private import READ

Found = TypeVar("Found")
READS = 3       # of single numbers in one call: a scale or a threshold takes one or two, a loop one a step
MOST_READS, MOST_OPERATIONS = 10_000, 200_000    # of a forward and a backward: a solver takes some hundreds, and both are done in seconds


class _Counting(DispatchMode):
    """Counts how often a number is taken out of a tensor (`.item()`, `float(x)`, `if x > 0`). Raises Endless after `most` of that."""

    def __init__(self, most: float = math.inf) -> None:
        super().__init__()
        self.reads = self.operations = 0
        self._most = most

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        self.reads += func is READ
        self.operations += 1
        if self.reads > self._most or (self.operations > MOST_OPERATIONS and self._most < math.inf):
            raise Endless(f"it reads a number of its tensors {self.reads:,} times, in {self.operations:,} operations, and has not come to an end")
        return wrapped(func, *args, **named)


class Endless(Spent):
    """A call was ended that may never have ended by itself; the text says after what."""


def iterates(function: Differentiable, cotangents: Sequence[Tensor], elsewhere: Sequence[Tensor]) -> bool:
    """One forward and one backward, watched; and at other inputs, as an iteration that starts from the last solution has nothing to do at the same
    ones. What raises, or computes outside of torch, is not seen to iterate."""
    return _reads(lambda: function.once(cotangents)) >= READS or _reads(lambda: function.vjp_at(elsewhere, cotangents)) >= READS


def watched(call: Callable[[], Found]) -> Found:
    """What a call gives. Raises Endless where it takes more than MOST_READS or MOST_OPERATIONS; what it does outside of torch is not counted.

    What is wrong with it says nothing against the function, as torch computes other numbers under a dispatch mode: the backward of a complex
    `linalg.lstsq` takes a conjugate for the number itself (torch 2.13). A function may also not bear to be watched at all.
    """
    with _Counting(MOST_READS):
        return call()


def _reads(call: Callable[[], object]) -> int:
    counting = _Counting()
    with suppress(Exception), counting:
        call()
    return counting.reads
