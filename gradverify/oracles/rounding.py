"""What backward, or another opinion, rounds away inside: a difference that no formula makes, as those of tanh(x) and 1 − 2 / (1 + exp(2x)) at 1e-10.

Every operation of both is rounded at random in its own dtype (stochastic arithmetic: Vignes, CESTAC, 1978), and the inputs by an ulp, which is what
code that leaves torch shows. What the gradient spreads by then is its bar. Where both can be had in float64, they must agree there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import numbers
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import mismatches, with_undecided
from gradverify.numerics.rungs import Array, Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Gives, rounded_anew
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject

# ---- The bar of a gradient that is compared with another one
Route = Callable[[Sequence[Tensor], int], Array]
"""The gradient's real coordinates at other inputs, of one output element of the pair."""
InFloat64 = tuple[Sequence[Tensor], Route, Route]
"""The inputs, and the gradient by either side."""
IN_DOUBLE = 2.0**-20    # of the bar in float32: what two right gradients may be off by in float64 (a rounding there is 2⁻²⁹ of one here)
ROWS, WAYS = 64, 5  # of a pair with mismatches, as far as they are explained: so many backwards each, by every route


def row_of(function: Gives, outputs: Sequence[Tensor], tensor: int, output: int) -> Route:
    """The route of one-hot cotangents at one of the `outputs`, to one input tensor."""
    y = outputs[output]

    def route(inputs: Sequence[Tensor], row: int) -> Array:
        one = torch.zeros(y.shape, dtype=y.dtype, device=y.device)
        (torch.view_as_real(one) if one.is_complex() else one).view(-1)[row] = 1.0
        return _coordinates(function.vjp_at(inputs, [one if place == output else None for place in range(len(outputs))])[tensor], inputs[tensor])

    return route


def whole_of(pull: Callable[[Sequence[Tensor]], Sequence[Tensor | None]], tensor: int) -> Route:
    """The route of a gradient that is taken for one cotangent: to one input tensor."""
    return lambda inputs, _: _coordinates(pull(inputs)[tensor], inputs[tensor])


def _coordinates(gradient: Tensor | None, x: Tensor) -> Array:
    return numbers(torch.zeros_like(x) if gradient is None else gradient).copy()


def beside_rounding(pair: Pair, subject: Subject, routes: Sequence[Route], in_float64: Callable[[], InFloat64 | None] = lambda: None,
                    rtol: float = 0.0) -> Pair:
    """The pair with its mismatches undecided, where what the `routes` round inside explains each of them, the worst first.

    `in_float64`: both sides, which must agree there to `rtol`; asked for where rounding explains a row, None where one of them refuses float64."""
    wrong = mismatches(pair) if pair.count(Outcome.MISMATCH) else None
    if wrong is None:
        return pair
    off = np.abs(wrong.analytic - wrong.numeric)
    rows = list(dict.fromkeys(wrong.output[np.argsort(-off, kind="stable")].tolist()))
    if len(rows) > ROWS:
        return pair
    try:
        both = None
        for row in rows:
            own = np.flatnonzero(wrong.output == row)
            bar = Z * sum(_spread(subject, route, row)[wrong.input[own]] for route in routes)
            if not (off[own] <= bar + wrong.tolerance[own]).all():
                return pair
            both = both or in_float64()
            if both is not None:
                mine, theirs = (route(both[0], row)[wrong.input[own]] for route in both[1:])
                if not (np.abs(mine - theirs) <= rtol * np.abs(theirs) + IN_DOUBLE * bar).all():
                    return pair
    except UserCodeError:
        return pair
    return with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)


def _spread(subject: Subject, route: Route, row: int) -> Array:
    """One standard deviation of a row of a gradient, as its operations and the inputs round at random. Raises UserCodeError."""
    sources = (generator(subject.case.settings.seed, subject.case.check, f"rounding {number}") for number in range(WAYS))
    found = [rounded_anew(source, subject.inputs, lambda moved: route(moved, row)) for source in sources]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.std(found, 0, ddof=1)))
