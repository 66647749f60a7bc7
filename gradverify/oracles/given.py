"""Gradients that are known for one cotangent per checked output; a backward for these is compared
with them within the tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.exact import add_exact, rounding_floor
from gradverify.numerics.function.coordinates import columns_of, numbers
from gradverify.numerics.pairs.pair import Outcome, Pair, Tally
from gradverify.oracles.convergence import beside_largest
from gradverify.oracles.finite_difference import WORST
from gradverify.oracles.oracle import Checked
from gradverify.oracles.rounding import beside_rounding
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.target import Target


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
    def cotangents(self) -> tuple[Tensor, ...]:
        """Of the backward that is compared: dense random ones, where a subclass has no others."""
        return self.checked.cotangents(self.name)

    def gradients(
        self, cotangents: Sequence[Tensor], inputs: Sequence[Tensor] | None = None
    ) -> Gradients:
        """One per differentiable input for one cotangent per checked output, None where it says
        nothing; `inputs`: in place of the check's own."""
        raise NotImplementedError

    @cached_property
    def pairs(self) -> Mapping[int, Pair]:
        """By input, of those for which it gives one."""
        cotangents, function = self.cotangents, self.checked.function
        wanted, ours = (
            self.gradients(cotangents),
            function.vjp([cotangent.clone() for cotangent in cotangents]),
        )
        result = dict[int, Pair]()

        def mine_at(inputs: Sequence[Tensor], _: int) -> Gradients:
            return function.vjp_at(inputs, [cotangent.clone() for cotangent in cotangents])

        def theirs_at(inputs: Sequence[Tensor], _: int) -> Gradients:
            return self.gradients(cotangents, inputs)

        for place, (x, gradient, theirs) in enumerate(
            zip(self.checked.subject.inputs, ours, wanted, strict=True)
        ):
            if theirs is not None:
                pair = self._exactly(
                    place, x, torch.zeros_like(x) if gradient is None else gradient, theirs
                )
                result[place] = beside_rounding(
                    pair,
                    self.checked.subject,
                    [mine_at, theirs_at] if self.everywhere else [mine_at],
                )
        return result

    def _exactly(self, place: int, x: Tensor, gradient: Tensor, wanted: Tensor) -> Pair:
        def tighter(function: Differentiable) -> Pair:
            found = function.vjp([cotangent.clone() for cotangent in self.cotangents])[place]
            return self._compared(place, x, torch.zeros_like(x) if found is None else found, wanted)

        return beside_largest(self._compared(place, x, gradient, wanted), self.checked, tighter)

    def _compared(self, place: int, x: Tensor, gradient: Tensor, wanted: Tensor) -> Pair:
        columns, unit = columns_of([x], [None], [False]), self.checked.unit
        mine, theirs = numbers(gradient)[None], numbers(wanted)[None]
        tally, (atol, rtol) = (
            Tally(place, 0, (1, mine.size), WORST),
            self.checked.settings.tolerances(),
        )
        with np.errstate(all="ignore"):
            add_exact(
                tally,
                mine,
                theirs,
                rounding_floor(unit, mine, theirs, columns.scale, columns.size),
                atol=atol,
                rtol=rtol,
                unit=unit,
                rows=np.zeros(1, np.intp),
                first=0,
                broken=Outcome.MISMATCH,
            )
        return tally.result(unit, False)
