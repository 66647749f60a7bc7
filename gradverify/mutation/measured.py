"""The finite differences of a check, taken once: what they say of damaged gradients without another
forward or backward."""

from __future__ import annotations

import numpy as np
import torch

from gradverify.evidence import Evidence
from gradverify.numerics.function.coordinates import numbers, one_hot
from gradverify.numerics.pairs.pair import Outcome
from gradverify.subject.damage import Damage, done
from gradverify.subject.differentiable import copied

MARGIN = 8.0  # times the largest error that the check forgives: no second look would clear it
ROWS, KEPT = 1024, 2**22  # backwards, and numbers that they return, at most


class Measured:
    """Of a check that passed. It knows damage that is found beyond doubt; of all other damage it says
    nothing, and the check must run."""

    def __init__(self, evidence: Evidence) -> None:
        pairs, inputs = evidence.jacobian.pairs, evidence.subject.inputs
        low = any(pair.low_precision for pair in pairs.values())
        _, self._rtol = evidence.settings.tolerances(low)
        self._rows = []
        outputs = evidence.outputs
        places = [(n, j) for n, y in enumerate(outputs) for j in range(len(numbers(y)))]
        count = min(len(places), ROWS, KEPT // max(sum(x.numel() for x in inputs), 1))
        spread = np.linspace(0, len(places) - 1, count).astype(int) if count else ()
        for output, j in (places[n] for n in np.unique(spread).astype(int)):
            y = outputs[output]
            cotangents: list[torch.Tensor | None] = [None] * len(outputs)
            cotangents[output] = one_hot(y.shape, y.dtype, y.device, j)
            gradients, seen = copied(evidence.function.vjp(cotangents)), {}
            for (place, own), pair in pairs.items():
                e, gradient = pair.entries, gradients[place]
                if own == output and e is not None:
                    a = numbers(torch.zeros_like(inputs[place]) if gradient is None else gradient)
                    at = np.flatnonzero((e.output == j) & (e.outcome == Outcome.PASS))
                    at = at[np.abs(a[e.input[at]] - e.analytic[at]) <= pair.resolution]
                    seen[place] = e.input[at], e.numeric[at], MARGIN * pair.resolution
            self._rows.append((cotangents, gradients, seen))

    def finds(self, damage: Damage) -> int | None:
        """The place of an input one of whose elements is clearly off under this damage."""
        for cotangents, gradients, seen in self._rows if damage.how in ("element", "swap") else ():
            damaged = done(damage, gradients, cotangents)
            for place in (place for place in damage.inputs if place in seen):
                coordinate, numeric, beyond = seen[place]
                g = damaged[place]
                a = np.zeros(len(coordinate)) if g is None else numbers(g)[coordinate]
                if (np.abs(a - numeric) > beyond + MARGIN * self._rtol * np.abs(a)).any():
                    return place
        return None
