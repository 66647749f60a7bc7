"""The checks by which constants.py judges a value: `rough`, the functions of rough.py; `families`,
a thin part of parity.py's; and the few of excused.py, by the names they have there, and `float32`,
under GV226.

Imports gradverify, as it is by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from zlib import crc32

from excused import EXCUSED, NARROW, Narrow
from parity import Record, recorded, settle
from population import Planned, units
from rough import ROUGH, Damage, Rough
from user import JACOBIAN, MODES, differentiated, judged

from gradverify.model.result import CaseResult
from gradverify.subject.subject import Argument

THIN = 193  # one of so many of the families' checks
FAULTS = ("none", "tiny", "percent")  # larger errors are found whatever the numbers are
QUICK = 4  # one of so many of all


def records(populations: tuple[str, ...], quick: bool) -> list[Record]:
    """In a fixed order."""
    settle()
    made = {
        "rough": _rough,
        "families": _families,
        "float32": _narrow,
        **{name: partial(_excused, name) for name in EXCUSED},
    }
    chosen = [each for name, of in made.items() if name in populations for each in of()]
    return [recorded(each, each.judge()) for each in chosen[:: QUICK if quick else 1]]


def _rough() -> Iterator[Planned]:
    """Each function right and damaged, in mode entries or another one: right in mode entries
    throughout, every second in both."""
    for place, rough in enumerate(ROUGH):
        modes = ("entries", MODES[1 + place // 2 % (len(MODES) - 1)])
        yield from (_planned(rough, Damage.NONE, mode) for mode in modes[: 1 + place % 2])
        yield _planned(rough, (Damage.PERCENT, Damage.LEAK)[place % 2], modes[place // 2 % 2])


def _planned(rough: Rough, damage: Damage, mode: str) -> Planned:
    judge = partial(_judged, rough, damage, mode)
    return Planned(
        f"rough {rough.name}",
        damage.value,
        mode,
        0,
        "right" if damage is Damage.NONE else "wrong",
        0,
        judge,
    )


def _judged(rough: Rough, damage: Damage, mode: str) -> CaseResult:
    return judged(rough.name, rough.with_damage(damage), differentiated(rough.inputs()), mode, 0)


def _excused(name: str) -> Iterator[Planned]:
    return (
        _planned(each, damage, "entries")
        for each in EXCUSED[name]
        for damage in (Damage.NONE, Damage.PERCENT, Damage.DOUBLE)
    )


def _narrow() -> Iterator[Planned]:
    for each in NARROW:
        truth = "wrong" if each.off else "right"
        yield Planned(
            f"rough {each.name}",
            f"{each.off:g} off in float32",
            "entries",
            0,
            truth,
            0,
            partial(_in_float32, each),
        )


def _in_float32(each: Narrow) -> CaseResult:
    return judged(
        each.name,
        each.function,
        [Argument("x", each.inputs()[0], True)],
        "entries",
        0,
        select=(*JACOBIAN, "GV226"),
    )


def _families() -> Iterator[Planned]:
    every = (each for unit in units(("family",)) for each in unit.planned() if each.fault in FAULTS)
    yield from (each for each in every if crc32(each.name.encode()) % THIN == 0)
