"""Gradients that are known for one cotangent per checked output; a backward for these is compared
with them within the tolerance. What every comparison with an oracle's numbers goes through.

What backward, or the other opinion, rounds away inside is a difference that no formula makes, as
those of tanh(x) and 1 − 2 / (1 + exp(2x)) at 1e-10. Every operation of both is rounded at random in
its own dtype (stochastic arithmetic: Vignes, CESTAC, 1978), and the inputs by an ulp, which is what
code that leaves torch shows. What the gradient spreads by then is its bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.model.result import WORST
from gradverify.numerics.exact import add_exact, rounding_floor
from gradverify.numerics.function.coordinates import columns_of, numbers
from gradverify.numerics.pairs.pair import Outcome, Pair, Tally, mismatches, with_undecided
from gradverify.numerics.rungs import Array, Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.convergence import beside_largest
from gradverify.oracles.finite_difference import rounded_anew
from gradverify.oracles.oracle import Checked
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.failure import tried
from gradverify.subject.subject import Cotangents, Subject, Tensors, filled
from gradverify.subject.target import Target

Row = Callable[[Tensors, int], Cotangents]
"""The gradients at other inputs, of one output element of the pair."""
# Of a pair with mismatches, as far as they are explained: so many backwards each, by both sides
ROWS, WAYS = 64, 5


def exactly(
    place: tuple[int, int],
    mine: Array,
    theirs: Array,
    floor: Array | float,
    settings: Settings,
    unit: float,
    noise: Array | float = 0.0,
) -> Pair:
    """The pair of an (input, output): numbers [m, n] against an oracle's, which have no
    truncation."""
    tally, (atol, rtol) = Tally(*place, mine.shape, WORST), settings.tolerances()
    with np.errstate(all="ignore"):
        add_exact(
            tally,
            mine,
            theirs,
            floor,
            atol=atol,
            rtol=rtol,
            unit=unit,
            broken=Outcome.MISMATCH,
            noise=noise,
        )
    return tally.result(unit, False)


def beside_rounding(pair: Pair, subject: Subject, sides: Sequence[Row]) -> Pair:
    """The pair with its mismatches undecided, where what the `sides` round inside explains each of
    them, the worst first."""
    wrong = mismatches(pair) if pair.count(Outcome.MISMATCH) else None
    if wrong is None:
        return pair
    off = np.abs(wrong.analytic - wrong.numeric)
    rows = list(dict.fromkeys(wrong.output[np.argsort(-off, kind="stable")].tolist()))

    def spread(side: Row, row: int) -> Array:
        """One standard deviation of a row of a gradient."""
        found = list[Array]()
        for number in range(WAYS):
            source = subject.generator(f"rounding {number}")
            row_of = rounded_anew(source, subject.inputs, lambda moved: side(moved, row))
            found.append(numbers(filled(row_of, subject.inputs)[pair.input]).copy())
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nan_to_num(np.std(found, 0, ddof=1)))

    def explained(row: int) -> bool:
        own = np.flatnonzero(wrong.output == row)
        bar = Z * sum(spread(side, row)[wrong.input[own]] for side in sides)
        return bool((off[own] <= bar + wrong.tolerance[own]).all())

    if len(rows) <= ROWS and tried(lambda: all(map(explained, rows))):
        return with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)
    return pair


class Given:
    """An oracle whose subclass says `gradients`. `name`: as messages call it, `says`: as what
    backward differs from.

    `everywhere`: it knows them at other inputs too, which shows what it rounds inside.
    """

    everywhere = False

    def __init__(self, checked: Checked, name: str, says: str | None = None) -> None:
        self.checked, self.name, self.says = checked, name, says or name

    @property
    def target(self) -> Target | None:
        """The code that it is, where there is any."""
        return None

    @property
    def cotangents(self) -> Tensors:
        """Of the backward that is compared: dense random ones, where a subclass has no others."""
        return self.checked.cotangents(self.name)

    def gradients(self, cotangents: Tensors, inputs: Tensors | None = None) -> Gradients:
        """One per differentiable input for one cotangent per checked output, None where it says
        nothing; `inputs`: in place of the check's own."""
        raise NotImplementedError

    @cached_property
    def pairs(self) -> Mapping[int, Pair]:
        """By input, of those for which it gives one."""
        checked, cotangents, result = self.checked, self.cotangents, dict[int, Pair]()
        inputs, unit = checked.subject.inputs, checked.unit
        wanted = self.gradients(cotangents)

        def ours(function: Differentiable, moved: Tensors | None = None) -> list[Tensor]:
            given = [cotangent.clone() for cotangent in cotangents]
            return filled(function.vjp(given, moved), inputs)

        def compared(place: int, gradient: Tensor, theirs: Tensor) -> Pair:
            columns = columns_of([inputs[place]], [None], [False])
            a = numbers(gradient)[None]
            v = numbers(theirs)[None]
            with np.errstate(all="ignore"):
                floor = rounding_floor(unit, a, v, columns.scale, columns.size)
            return exactly((place, 0), a, v, floor, checked.settings, unit)

        def further(place: int, theirs: Tensor, function: Differentiable) -> Pair:
            return compared(place, ours(function)[place], theirs)

        sides: list[Row] = [lambda moved, _: ours(checked.function, moved)]
        if self.everywhere:
            sides.append(lambda moved, _: self.gradients(cotangents, moved))
        for place, (mine, theirs) in enumerate(zip(ours(checked.function), wanted, strict=True)):
            if theirs is not None:
                pair = beside_largest(
                    compared(place, mine, theirs), checked, partial(further, place, theirs)
                )
                result[place] = beside_rounding(pair, checked.subject, sides)
        return result
