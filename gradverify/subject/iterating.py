"""Detection of functions that iterate until something is below a tolerance: with a tighter
tolerance they iterate longer, and their remaining error is smaller.

Both are measured. Wherever a line of the user's code compares tensors (`residual <= tolerance`) or
reads a floating number (`float(residual)`), the comparison can be made as if the tolerance were
2⁻¹⁰ (or 2⁻³⁰) of what it is. A line that is then run more often, in a function whose outputs stay
the same within the check's tolerance, is the stopping test of an iteration. Other reads of numbers,
or a loop over rows with a test in it, do not qualify.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import Line, Spent, Value, tried, users_line
from gradverify.subject.own_code import DispatchMode, Keywords, wrapped
from gradverify.subject.snapshot import near
from gradverify.torch_private import READ

# Of a forward and a backward: a solver takes some hundreds, and this many take seconds
MOST_READS, MOST_OPERATIONS = 10_000, 200_000
# Factors for either side of a comparison; Newton's method may end far below its tolerance
TIGHTER = (2.0**-10, 2.0**10, 2.0**-30, 2.0**30)
LINES = 8  # of the user's code that are tried, the most frequently run first
COMPARES = frozenset(
    getattr(getattr(torch.ops.aten, name), kind)
    for name in ("le", "lt", "ge", "gt")
    for kind in ("Scalar", "Tensor")
)


class _Counting(DispatchMode):
    """Mode that counts how often a number is read from a tensor (`.item()`, `float(x)`, `if x >
    0`). Raises Endless after `most` reads."""

    def __init__(self, most: float = math.inf) -> None:
        super().__init__()
        self.reads = self.operations = 0
        self._most = most

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        self.reads += func is READ
        self.operations += 1
        if self.reads > self._most or (self.operations > MOST_OPERATIONS and self._most < math.inf):
            raise Endless(
                f"it reads a number of its tensors {self.reads:,} times, in {self.operations:,} "
                "operations, and has not come to an end"
            )
        return wrapped(func, *args, **named)


class Tightened(_Counting):
    """Mode that multiplies the right-hand side of comparisons at some lines by a factor.
    `comparisons`: the number of comparisons of each line."""

    def __init__(self, factors: Mapping[Line, float], most: float = math.inf) -> None:
        super().__init__(most)
        self.comparisons = Counter[Line]()
        self._factors = factors

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        reads = func is READ and args[0].is_floating_point()
        line = users_line() if reads or func in COMPARES else None
        if line is None:
            return super().answer(func, args, named)
        self.comparisons[line] += 1
        factor = self._factors.get(line, 1.0)
        if factor == 1.0 or reads:
            found = super().answer(func, args, named)
            return found / factor if reads else found
        return super().answer(func, (args[0], args[1] * factor), named)


class Endless(Spent):
    """A call was stopped that might never have ended; the message states what it had done."""


def stopping_tests(
    function: Differentiable,
    cotangents: Sequence[Tensor],
    elsewhere: Sequence[Tensor],
    share: float,
) -> Mapping[Line, float]:
    """Return the lines of the stopping tests of the function's iterations, with the factor that
    makes each tolerance tighter; empty where it does not iterate, or computes outside of torch.
    `share`: how far its outputs may change then, relative to the largest.

    Calls the function at its inputs and at others, since an iteration that starts from its last
    solution takes many steps only at new inputs; where lines compare repeatedly, once more and up
    to four times for each of these lines.
    """
    found = dict[Line, float]()
    for call in (
        lambda: function.once(cotangents)[0],
        lambda: function.vjp(cotangents, elsewhere)[:0],
    ):
        first = _watched(call, {})
        lines = [line for line, count in first[1].most_common(LINES) if count > 1] if first else []
        base = _watched(call, {}) if lines else None
        if base is None:
            continue
        for line, factor in product(lines, TIGHTER):
            tight = _watched(call, {line: factor}) if line not in found else None
            if (
                tight
                and tight[1][line] > base[1][line]
                and all(near(a, b, share) for a, b in zip(base[0], tight[0], strict=True))
            ):
                found[line] = factor
    return found


def watched(call: Callable[[], Value]) -> Value:
    """Make a call and return its result. Raises Endless where it takes more than MOST_READS or
    MOST_OPERATIONS; operations outside of torch are not counted.

    Wrong results are not held against the function, as torch may compute other numbers under a
    dispatch mode: the backward of a complex `linalg.lstsq` ignores a conjugate (torch 2.13). Some
    functions do not run under a mode at all.
    """
    with _Counting(MOST_READS):
        return call()


def _watched(
    call: Callable[[], Sequence[Any]], factors: Mapping[Line, float]
) -> tuple[Sequence[Any], Counter[Line]] | None:
    """Return the result of a call, and the number of comparisons of each line; None where it raises
    or is stopped."""
    mode = Tightened(factors, MOST_READS)
    with suppress(Endless), mode:
        found = tried(call)
        return None if found is None else (found, mode.comparisons)
    return None
