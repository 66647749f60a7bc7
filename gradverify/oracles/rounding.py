"""What backward, or another opinion, rounds away inside: a difference that no formula makes, as those of tanh(x) and 1 − 2 / (1 + exp(2x)) at 1e-10.

Rounding comes anew at every point; a formula, right or wrong, goes smoothly from one to the next. So fourth differences nearby show rounding
alone. Where it is the same at all of them, as that of 1 + tanh(x) near −1, an oracle may say what it can be. It explains no more than some roundings
of 1 and of the gradient: backward is at fault for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.flat import numbers
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.revised import Mismatches, mismatches, with_undecided
from gradverify.numerics.rungs import Array, Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Gives
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject

Route = Callable[[Sequence[Tensor], int], Array]
"""The gradient's real coordinates at other inputs, of one output element of the pair."""

Spread = Callable[[int], Array]
"""One standard deviation of the gradient's real coordinates, of one output element of the pair, as its operations round at random."""

CAP = 2.0**6            # roundings of the cotangent's size, and of the gradient: as where forward mode and backward disagree
SHAKE = 2.0**-8         # of each input, from point to point
FOURTH = (1.0, -4.0, 6.0, -4.0, 1.0)    # a formula's are SHAKE⁴ of its size: 2e-10
AMPLIFIED = 70**0.5     # times the rounding of one value, in standard deviations
TIMES = 16.0            # such deviations: between two right ways; few points are measured, and rounding may be 0 at most of them
DIRECTIONS, ROWS = 2, 8     # in which the inputs are shaken; elements of an output whose gradients are looked at, the worst first


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


def beside_rounding(pair: Pair, subject: Subject, routes: Sequence[Route], unit: float, cotangent: float = 1.0, spread: Spread | None = None) -> Pair:
    """The pair with its mismatches undecided, where what the `routes` round inside explains each of them.

    Calls nothing where any is off by more than that ever may be. `cotangent`: its norm, as a whole; of rows it is 1. `spread`: asked of what is left.
    """
    wrong = mismatches(pair) if pair.count(Outcome.MISMATCH) else None
    if wrong is None:
        return pair
    off = np.abs(wrong.analytic - wrong.numeric)
    if not (off <= CAP * unit * (cotangent + np.maximum(np.abs(wrong.analytic), np.abs(wrong.numeric)))).all():
        return pair
    noise = max((_noise(subject, route, wrong) for route in routes), default=0.0)
    left = off > TIMES * noise
    rows = np.unique(wrong.output[left]).tolist()
    if spread is not None and len(rows) <= ROWS:
        for row in rows:
            own = np.flatnonzero(left & (wrong.output == row))
            left[own] = ~(off[own] <= Z * spread(row)[wrong.input[own]])
    return pair if left.any() else with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)


def _noise(subject: Subject, route: Route, wrong: Mismatches) -> float:
    """The rounding that a route shows at the elements that are off; 0 where it refuses other inputs."""
    rows = list(dict.fromkeys(wrong.output[np.argsort(-np.abs(wrong.analytic - wrong.numeric), kind="stable")].tolist()))[:ROWS]
    largest = 0.0
    try:
        for points in _shaken(subject):
            for row in rows:
                at = np.array([route(inputs, row)[wrong.input[wrong.output == row]] for inputs in points])
                shown = np.abs(np.array(FOURTH) @ at)
                largest = max(largest, float(shown[np.isfinite(shown)].max(initial=0.0)))
    except UserCodeError:
        return 0.0
    return largest / AMPLIFIED


def _shaken(subject: Subject) -> Iterator[list[list[Tensor]]]:
    """Five points on a line through the inputs, in some directions."""
    source = generator(subject.case.settings.seed, subject.case.check, "rounding")
    for _ in range(DIRECTIONS):
        moves = [SHAKE * x.abs() * signed(x, source) for x in subject.inputs]
        yield [[x + side * move for x, move in zip(subject.inputs, moves, strict=True)] for side in (-2, -1, 0, 1, 2)]
