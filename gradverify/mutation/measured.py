"""The finite differences of a check, taken once: what they say of damaged gradients without another forward or backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gradverify.evidence import Evidence
from gradverify.numerics.function.coordinates import numbers, one_hot
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.rungs import Array, Index
from gradverify.subject.damage import Cotangents, Damage, done
from gradverify.subject.differentiable import Gradients, copied

MARGIN = 8.0  # times the largest error that the check forgives anywhere: so far off that no second look would clear it
ROWS, KEPT = 1024, 2**22  # backwards, and numbers that they return, at most


@dataclass(frozen=True)
class Seen:
    """Right elements of one row and one input: their coordinates [n] in the input, their finite differences [n], the error that is beyond doubt."""

    coordinate: Index
    numeric: Array
    beyond: float


@dataclass(frozen=True)
class Row:
    """One row of the Jacobian: what was asked of backward, what it says, and what finite differences say, by differentiable input."""

    cotangents: Cotangents
    gradients: Gradients
    seen: Mapping[int, Seen]


class Measured:
    """Of a check that passed. It knows damage that is found beyond doubt; of all other damage it says nothing, and the check must run."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        _, self._rtol = evidence.settings.tolerances(any(pair.low_precision for pair in evidence.jacobian.pairs.values()))

    def finds(self, damage: Damage) -> int | None:
        """The place of an input one of whose elements is clearly off under this damage."""
        if damage.how in ("deaf", "stale"):
            return None
        for row in self._rows:
            gradients = done(damage, row.gradients, row.cotangents)
            for place in damage.inputs:
                if place in row.seen and self._off(row.seen[place], gradients, place):
                    return place
        return None

    def _off(self, seen: Seen, gradients: Gradients, place: int) -> bool:
        gradient = gradients[place]
        a = np.zeros(len(seen.coordinate)) if gradient is None else numbers(gradient)[seen.coordinate]
        return bool((np.abs(a - seen.numeric) > seen.beyond + MARGIN * self._rtol * np.abs(a)).any())

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        """As many as are affordable, spread over all outputs."""
        size = sum(x.numel() for x in self._evidence.subject.inputs)
        places = [(output, j) for output, y in enumerate(self._evidence.outputs) for j in range(len(numbers(y)))]
        count = min(len(places), ROWS, KEPT // max(size, 1))
        chosen = np.unique(np.linspace(0, len(places) - 1, count).astype(int)) if count else ()
        return tuple(self._row(*places[n]) for n in chosen)

    def _row(self, output: int, j: int) -> Row:
        y = self._evidence.outputs[output]
        cotangents = [one_hot(y.shape, y.dtype, y.device, j) if n == output else None for n in range(len(self._evidence.outputs))]
        gradients = copied(self._evidence.function.vjp(cotangents))
        return Row(cotangents, gradients, dict(self._of_row(output, j, gradients)))

    def _of_row(self, output: int, j: int, gradients: Gradients) -> Iterator[tuple[int, Seen]]:
        for (place, own), pair in self._evidence.jacobian.pairs.items():
            if own == output and pair.entries is not None:
                gradient = gradients[place]
                a = numbers(torch.zeros_like(self._evidence.subject.inputs[place]) if gradient is None else gradient)
                yield place, self._seen(pair, j, a)

    def _seen(self, pair: Pair, j: int, a: Array) -> Seen:
        """Where the row is what the check compared: symmetric inputs, for one, are compared in pairs."""
        e = pair.entries
        assert e is not None
        own = np.flatnonzero((e.output == j) & (e.outcome == Outcome.PASS))
        own = own[np.abs(a[e.input[own]] - e.analytic[own]) <= pair.resolution]
        return Seen(e.input[own], e.numeric[own], MARGIN * pair.resolution)
