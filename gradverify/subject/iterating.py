"""Does a function iterate until something is below a tolerance? Then it goes on where the tolerance
is tighter, and leaves less.

Both are measured. Wherever a line of the user's code compares tensors (`residual <= tolerance`) or
reads a floating number (`float(residual)`), the comparison can be made as if the tolerance were
2⁻¹⁰ (or 2⁻³⁰) of what it is. A line that is then run more often, by a function whose outputs stay
what they are within the check's tolerance, is the test by which an iteration stops. Reading
numbers, or a loop over rows with a test in it, is none.
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

# Of a forward and a backward: a solver takes some hundreds, and both are done in seconds
MOST_READS, MOST_OPERATIONS = 10_000, 200_000
# As factors of either side; Newton's method may end far below its tolerance
TIGHTER = (2.0**-10, 2.0**10, 2.0**-30, 2.0**30)
LINES = 8  # of the user's code that are tried, those first that are run most often
COMPARES = frozenset(
    getattr(getattr(torch.ops.aten, name), kind)
    for name in ("le", "lt", "ge", "gt")
    for kind in ("Scalar", "Tensor")
)


class _Counting(DispatchMode):
    """Counts how often a number is taken out of a tensor (`.item()`, `float(x)`, `if x > 0`).
    Raises Endless after `most` of that."""

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
    """Makes comparisons at some lines as if what is compared with were that many times as large.
    `asked`: how often each line compared."""

    def __init__(self, factors: Mapping[Line, float], most: float = math.inf) -> None:
        super().__init__(most)
        self.asked = Counter[Line]()
        self._factors = factors

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        reads = func is READ and args[0].is_floating_point()
        line = users_line() if reads or func in COMPARES else None
        if line is None:
            return super().answer(func, args, named)
        self.asked[line] += 1
        factor = self._factors.get(line, 1.0)
        if factor == 1.0 or reads:
            found = super().answer(func, args, named)
            return found / factor if reads else found
        return super().answer(func, (args[0], args[1] * factor), named)


class Endless(Spent):
    """A call was ended that may never have ended by itself; the text says after what."""


def stopping_tests(
    function: Differentiable,
    cotangents: Sequence[Tensor],
    elsewhere: Sequence[Tensor],
    share: float,
) -> Mapping[Line, float]:
    """The lines by which the function's iterations stop, with the factor that makes each tolerance
    tighter; empty where it does not iterate, or computes outside of torch. `share`: how far, beside
    the largest, its outputs may go then.

    Calls it here and at other inputs, as an iteration that starts from the last solution has much
    to do only where it comes to new ones; where lines compare again and again there, once more and
    up to four times for each of these.
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
    """What a call gives. Raises Endless where it takes more than MOST_READS or MOST_OPERATIONS;
    what it does outside of torch is not counted.

    What is wrong with it says nothing against the function, as torch computes other numbers under a
    dispatch mode: the backward of a complex `linalg.lstsq` takes a conjugate for the number itself
    (torch 2.13). A function may also not bear to be watched at all.
    """
    with _Counting(MOST_READS):
        return call()


def _watched(
    call: Callable[[], Sequence[Any]], factors: Mapping[Line, float]
) -> tuple[Sequence[Any], Counter[Line]] | None:
    """What a call gives, and which lines compared how often; None where it raises, or does not come
    to its end."""
    mode = Tightened(factors, MOST_READS)
    with suppress(Endless), mode:
        found = tried(call)
        return None if found is None else (found, mode.asked)
    return None
