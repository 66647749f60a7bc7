"""What torch's own derivative of the forward says of gradients that finite differences decide by themselves: for the reader, not the verdict.

One random cotangent an output is pulled back by backward and by the witness. They agree where they are the same to rounding. Where they do not, both
are asked again a little to both sides: rounding is another one there, and a rounded constant the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.rungs import U64, Array
from gradverify.oracles.along import coordinates, parts
from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes
from gradverify.oracles.witness import Absent, Witness, witness
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject

POINTS = 3
SMALLEST = 1e-12        # of the largest element: what is off by less is not told
STEADY = 16.0           # times what the share differs by from point to point
ROUNDINGS = 2.0**10     # of the largest element of the pulled back cotangent, in which terms of other rows cancel


def beside_agreement(found: Jacobian, subject: Subject, checked: Sequence[int], outputs: Sequence[Tensor], wishes: Wishes,
                     function: Gives) -> Jacobian:
    """The comparison with `apart` of the pairs that nobody has held against the witness yet; eight calls, and two for each output."""
    asked = [key for key, pair in found.pairs.items() if pair.apart is None and not wishes.symmetric[pair.input]]
    if not asked or found.choice is None or any(pair.count(Outcome.MISMATCH) for pair in found.pairs.values()):
        return found
    with witness(subject, checked, outputs, wishes) as called:
        if isinstance(called, Absent):
            return replace(found, unwitnessed=called.reason)
        try:
            apart = {output: _apart(called, function, outputs, output, subject, wishes) for output in {output for _, output in asked}}
        except UserCodeError as error:
            return replace(found, unwitnessed=error.message)
    return replace(found, pairs={key: _with(pair, *apart[key[1]][key[0]]) if key in asked else pair for key, pair in found.pairs.items()})


def _with(pair: Pair, apart: float, steady: float) -> Pair:
    return replace(pair, apart=apart, steady=steady)


def _apart(called: Witness, function: Gives, outputs: Sequence[Tensor], output: int, subject: Subject, wishes: Wishes) -> list[tuple[float, float]]:
    """By input, as shares of the largest element: how far, and how far at all three points alike. Raises UserCodeError."""
    settings = subject.case.settings
    one = signed(outputs[output].detach(), generator(settings.seed, subject.case.check, f"agreement {output}"))
    v = [one if place == output else None for place in range(len(outputs))]
    columns = columns_of(subject.inputs, wishes.domains, [False] * len(subject.inputs))
    own = parts(subject.inputs)

    def shares(mine: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> list[Array]:
        both = [coordinates(pulled, subject.inputs) * columns.size for pulled in (mine, theirs)]
        return [_shares(both[0][part], both[1][part]) for part in own]

    here = shares(function.vjp(v), called.pull(v))
    apart = [float(np.abs(share).max(initial=0.0)) for share in here]
    if max(apart, default=0.0) < SMALLEST:
        return [(each, 0.0) for each in apart]
    asked = [(called.checked[place], each) for place, each in enumerate(v) if each is not None]
    points = [here]
    for beside in called.beside:
        theirs = beside.gradients([place for place, _ in asked], [each for _, each in asked])
        points.append(shares(function.vjp_at([x.detach().clone().requires_grad_() for x in beside.leaves], v), theirs))
    return [(each, _steady(np.stack([point[place] for point in points]))) for place, each in enumerate(apart)]


def _shares(mine: Array, theirs: Array) -> Array:
    """By how much of the largest element each one is off; nothing where that is rounding."""
    reach, off = float(np.abs(theirs).max(initial=0.0)), mine - theirs
    if float(np.abs(off).max(initial=0.0)) <= ROUNDINGS * U64 * reach:
        return np.zeros_like(off)
    return off / reach if reach else np.full_like(off, np.inf)


def _steady(shares: Array) -> float:
    """How far off [points, N] is at all points alike; 0 where that is no more than rounding may be."""
    if len(shares) < POINTS or not np.isfinite(shares).all():
        return 0.0
    off, changes = float(np.abs(shares.mean(0)).max(initial=0.0)), float(np.ptp(shares, axis=0).max(initial=0.0))
    return off if off >= SMALLEST and off > STEADY * changes else 0.0
