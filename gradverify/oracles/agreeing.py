"""What torch's own derivative of the forward says of gradients that finite differences decide by themselves: for the reader, not the verdict.

One random cotangent an output is pulled back by backward and by the witness. They agree where they are the same to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from torch import Tensor

from gradverify.numerics.columns.tally import Outcome
from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.rungs import U64, Array
from gradverify.oracles.along import coordinates, real_size
from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes
from gradverify.oracles.witness import Absent, Witness, witness
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject

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
    return replace(found, pairs={key: replace(pair, apart=apart[key[1]][key[0]]) if key in asked else pair for key, pair in found.pairs.items()})


def _apart(called: Witness, function: Gives, outputs: Sequence[Tensor], output: int, subject: Subject, wishes: Wishes) -> list[float]:
    """By input, as a share of the largest element. Raises UserCodeError (GV003)."""
    settings = subject.case.settings
    one = signed(outputs[output].detach(), generator(settings.seed, subject.case.check, f"agreement {output}"))
    v = [one if place == output else None for place in range(len(outputs))]
    mine, theirs = (coordinates(pulled, subject.inputs) for pulled in (function.vjp(v), called.pull(v)))
    columns = columns_of(subject.inputs, wishes.domains, [False] * len(subject.inputs))
    ends = list(accumulate([real_size(x) for x in subject.inputs], initial=0))
    return [_share(mine[a:b] * columns.size[a:b], theirs[a:b] * columns.size[a:b]) for a, b in pairwise(ends)]


def _share(mine: Array, theirs: Array) -> float:
    reach, off = float(np.abs(theirs).max(initial=0.0)), float(np.abs(mine - theirs).max(initial=0.0))
    return 0.0 if off <= ROUNDINGS * U64 * reach else off / reach if reach else np.inf
