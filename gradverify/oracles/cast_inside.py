"""Where a function of float64 casts a part of what it computes to float32, its steps leave elements open; forward in float64 throughout does not.

Outputs that are float32 numbers show it by their bits (`Evidence.precisions`). A sum with what is not cast shows nothing, nor does a single number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Jacobian

LEFT_OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE)
OF_OTHERS = frozenset({Limit.TIE, Limit.BORDER, Limit.MASKED, Limit.STUCK, Limit.BUDGET, Limit.RESTLESS, Limit.SYMMETRY})
"""What no cast is the reason of."""


def beside_lifted(found: Jacobian, again: Callable[[], Jacobian | None]) -> Jacobian:
    """The comparison, in which pairs with open elements are as they come out `again`, where that decides more of them; itself where it does not.

    Asked where something is open and nothing wrong: what is wrong by the steps of float64 is not asked once more by those of float32.
    """
    if found.choice is None or any(pair.count(Outcome.MISMATCH) for pair in found.pairs.values()) or not any(map(_is_open, found.pairs.values())):
        return found
    other = again()
    if other is None or other.choice is None:
        return found
    if other.choice.mode is not found.choice.mode:
        return other if sum(map(_left, other.pairs.values())) < sum(map(_left, found.pairs.values())) else found
    more = {key: other.pairs[key] for key, pair in found.pairs.items() if _left(pair) and key in other.pairs and _decides(other.pairs[key], pair)}
    return replace(found, pairs={**found.pairs, **more}) if more else found


def _is_open(pair: Pair) -> bool:
    return bool(_left(pair)) and not {limit for limit, _ in pair.limits} <= OF_OTHERS


def _left(pair: Pair) -> int:
    return pair.count(*LEFT_OPEN)


def _decides(new: Pair, old: Pair) -> bool:
    return _left(new) < _left(old) or bool(new.count(Outcome.MISMATCH))
