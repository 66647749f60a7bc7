"""What backward, or another opinion, rounds away inside: a difference that no formula makes, as
those of tanh(x) and 1 − 2 / (1 + exp(2x)) at 1e-10.

Every operation of both is rounded at random in its own dtype (stochastic arithmetic: Vignes,
CESTAC, 1978), and the inputs by an ulp, which is what code that leaves torch shows. What the
gradient spreads by then is its bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import numbers
from gradverify.numerics.pairs.pair import Outcome, Pair, mismatches, with_undecided
from gradverify.numerics.rungs import Array, Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import rounded_anew
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject

Row = Callable[[Sequence[Tensor], int], Sequence[Tensor | None]]
"""The gradients at other inputs, of one output element of the pair."""
# Of a pair with mismatches, as far as they are explained: so many backwards each, by both sides
ROWS, WAYS = 64, 5


def beside_rounding(pair: Pair, subject: Subject, sides: Sequence[Row]) -> Pair:
    """The pair with its mismatches undecided, where what the `sides` round inside explains each of
    them, the worst first."""
    wrong = mismatches(pair) if pair.count(Outcome.MISMATCH) else None
    if wrong is None:
        return pair
    off = np.abs(wrong.analytic - wrong.numeric)
    rows = list(dict.fromkeys(wrong.output[np.argsort(-off, kind="stable")].tolist()))
    if len(rows) > ROWS:
        return pair
    try:
        for row in rows:
            own = np.flatnonzero(wrong.output == row)
            bar = Z * sum(
                _spread(subject, pair.input, side, row)[wrong.input[own]] for side in sides
            )
            if not (off[own] <= bar + wrong.tolerance[own]).all():
                return pair
    except UserCodeError:
        return pair
    return with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)


def _spread(subject: Subject, tensor: int, side: Row, row: int) -> Array:
    """One standard deviation of a row of a gradient, as its operations and the inputs round at
    random. Raises UserCodeError."""
    sources = (
        generator(subject.case.settings.seed, subject.case.check, f"rounding {number}")
        for number in range(WAYS)
    )
    zero, found = torch.zeros_like(subject.inputs[tensor]), list[Array]()
    for source in sources:
        gradient = rounded_anew(source, subject.inputs, lambda moved: side(moved, row))[tensor]
        found.append(numbers(zero if gradient is None else gradient).copy())
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.std(found, 0, ddof=1)))
