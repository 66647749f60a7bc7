"""One of N parts of a selection. Which part a check belongs to follows from its id alone: a new check moves no other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from gradverify.model.case import Case, Json
from gradverify.model.codec import to_json
from gradverify.model.event import Shard


def sharded(cases: Sequence[Case], index: int, count: int, *ruling: object) -> tuple[tuple[Case, ...], Shard]:
    """The cases of part `index` (from 1) of `count`, in their order, and what a report says of it. `ruling`: what else the verdicts depend on."""
    places = tuple(place for place, case in enumerate(cases) if part(case.id, count) == index)
    return tuple(cases[place] for place in places), Shard(index, count, fingerprint(cases, *ruling), len(cases), places)


def part(id: str, count: int) -> int:
    """From 1 to `count`; as even as drawing lots: of n checks a part gets n / count, give or take the square root of that."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) % count + 1


def fingerprint(cases: Sequence[Case], *ruling: object) -> str:
    """SHA-256 of what is selected and how it is judged, the same in every part and on every machine (paths of the machine are left out)."""
    checks = sorted([case.id, to_json(case.settings), to_json(case.expect)] for case in cases)
    said: Json = [checks, [to_json(each) for each in ruling]]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
