"""Which cases of a population the suite runs: the same ones each time, some of each stratum, and of every value of the other parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def sample(members: Sequence[Any], by: str | None = None, *, each: int = 1, most: int | None = None) -> list[Any]:
    """`each` cases for every value of the parameter `by`, in turn with other values of the rest; at most `most` cases, spread evenly over all."""
    strata: dict[Any, list[Any]] = {}
    for member in members:
        strata.setdefault(None if by is None else id(member.callspec.params[by]), []).append(member)
    kept = list[Any]()
    for place, stratum in enumerate(strata.values()):
        count = len(stratum) if by is None else min(each, len(stratum))
        kept += [stratum[(place * each + number * len(stratum) // count) % len(stratum)] for number in range(count)]
    if most is not None and len(kept) > most:
        kept = [kept[number * len(kept) // most] for number in range(most)]
    return kept
