"""Which cases of a population the suite runs: the same ones each time, some of each stratum, and of
every value of the other parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def sample(members: Sequence[Any], by: str | None = None, *, most: int | None = None) -> list[Any]:
    """A case for every value of the parameter `by`, in turn with other values of the rest; at most
    `most` cases, spread evenly over all."""
    kept = list(members)
    if by is not None:
        strata: dict[int, list[Any]] = {}
        for member in members:
            strata.setdefault(id(member.callspec.params[by]), []).append(member)
        kept = [stratum[place % len(stratum)] for place, stratum in enumerate(strata.values())]
    if most is not None and len(kept) > most:
        kept = [kept[number * len(kept) // most] for number in range(most)]
    return kept
