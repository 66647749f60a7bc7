"""What other roundings make of a number that a function computes: asked where two calls, which may round differently, are about to be called apart.

Two layouts of an input are two orders of the same sums. Where large numbers cancel (a² + b² − 2ab), or where a part is computed in float32, the two
differ by far more than roundings of the result; running every operation an ulp off at random shows by how much they may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.subject.anew import Anew
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError

WAYS = 6            # to round: all but one off by less than a tenth of the usual is one element in fifty thousand
STEADY = 2.0**10    # roundings: what two calls in the same way may differ by, as atomic adds do; one that is wrong now and then does by more


def rounded_anew(evidence: Evidence, measure: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
    """How far each element of a measurement goes at the same inputs when every operation rounds in another way.

    The second largest of all ways, the smaller of two equal calls each, and 0 where the function is another one when it is asked again: one that is
    wrong now and then must not excuse itself. 0 too where it refuses.
    """
    inputs, check = evidence.subject.inputs, evidence.subject.case.check
    try:
        here, far = measure(inputs), list[Tensor]()
        for way in range(WAYS):
            both = list[Tensor]()
            for _ in range(2):
                with Anew(generator(way, check, "anew")):
                    both.append((measure(inputs) - here).abs().nan_to_num(nan=0.0, posinf=0.0))
            far.append(torch.minimum(*both))
        again = measure(inputs)
    except UserCodeError:
        return torch.zeros(())
    size = here.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max() if here.numel() else 0.0
    second: Tensor = torch.stack(far).sort(0).values[-2]
    steady = (again - here).abs().nan_to_num(nan=0.0, posinf=0.0) <= STEADY * evidence.precision * size
    return second if bool(steady.all()) else torch.zeros(())
