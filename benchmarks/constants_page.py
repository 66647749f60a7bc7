"""What constants.py found of each constant, as a table and as a page."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from listed import EVERY, LISTED

READING = Path(__file__).with_name("constants_reading.md")
HEADER = ("constant", "value", "tried", "no verdict changes", "what changes first", "calls")
AS_IT_IS = "1"


@dataclass(frozen=True)
class Tried:
    """What another value changed: names of checks by what became of them. `ends`: why nothing came
    of it, else empty.

    `accused`: right gradients; `passed`: wrong ones; `undecided`: not decided any more; `failed`:
    no verdict but an error; `better`: true now and not before. `calls`: all calls over those at the
    value as it is. `same`: nothing is different at all, not even a call.
    """

    accused: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    calls: float = 1.0
    same: bool = False
    ends: str = ""

    @property
    def worse(self) -> int:
        return (
            len(self.accused)
            + len(self.passed)
            + len(self.undecided)
            + len(self.failed)
            + bool(self.ends)
        )

    @property
    def turned(self) -> bool:
        return bool(self.worse or self.better)


@dataclass(frozen=True)
class Measured:
    """One constant at other values, by how they are made (`×2`, `+1`), least first. `checks`: how
    many judged it."""

    name: str
    source: str
    checks: int
    tried: Mapping[str, Tried] = field(default_factory=dict)

    @property
    def exercised(self) -> bool:
        return not all(each.same for each in self.tried.values())

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """The values below and above, each outwards."""
        below = [
            change for change in self.tried if change.startswith("-") or change in ("×½", "×¼")
        ]
        return below[::-1], [change for change in self.tried if change not in below]

    @property
    def better(self) -> list[str]:
        """Values by which something is judged rightly that was not, and nothing worse."""
        return [change for change, each in self.tried.items() if each.better and not each.worse]


def table(found: Sequence[Measured]) -> list[str]:
    """A line for each constant that something saw, below a head of two."""
    lines = [row(HEADER), row(["---"] * len(HEADER))]
    return lines + [
        row(
            (
                f"`{each.name}`",
                f"`{each.source}`",
                ", ".join(each.tried),
                unchanged(each),
                first(each),
                calls(each),
            )
        )
        for each in found
    ]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def unchanged(each: Measured) -> str:
    """The values next to each other, from the one as it is, by which every verdict is the same."""
    if not each.exercised:
        return "not exercised"
    below, above = (_holds(each, side) for side in each.sides)
    return "only as it is" if below == above == AS_IT_IS else f"{below} to {above}"


def _holds(each: Measured, side: Sequence[str]) -> str:
    """Outwards as far as nothing turns."""
    last = AS_IT_IS
    for change in side:
        if each.tried[change].turned:
            break
        last = change
    return last


def first(each: Measured) -> str:
    """What turns at the next value on either side."""
    turned = (
        next((change for change in side if each.tried[change].turned), None) for side in each.sides
    )
    return "; ".join(f"{change}: {said(each.tried[change])}" for change in turned if change) or "–"


def said(tried: Tried) -> str:
    """The gravest first, with one check as an example."""
    if tried.ends:
        return f"no run ({tried.ends})"
    kinds = {
        "right accused": tried.accused,
        "wrong passed": tried.passed,
        "in error": tried.failed,
        "undecided that was not": tried.undecided,
        "judged rightly that was not": tried.better,
    }
    some = {words: names for words, names in kinds.items() if names}
    return (
        ", ".join(f"{len(names)} {words}" for words, names in some.items())
        + f" ({_short(next(iter(some.values()))[0])})"
    )


def _short(name: str) -> str:
    """The function and the fault, without mode and seed."""
    function, fault, mode, _ = name.split(" | ")
    return f"{function.removeprefix('rough ')}, {fault}, {mode}"


def calls(each: Measured) -> str:
    """More or fewer at the outermost values."""
    ends = [side[-1] for side in each.sides if side]
    return (
        ", ".join(
            f"{change}: {100 * (each.tried[change].calls - 1):+.0f} %"
            for change in ends
            if not each.tried[change].ends and abs(each.tried[change].calls - 1) >= 0.005
        )
        or "–"
    )


# ---- the page
NOT_EXERCISED = (
    "No check saw these at any value that was tried: not one verdict and not one call was "
    "different. They may matter in larger inputs, "
    "in other functions, or in the choice of `auto`, which these checks do not show."
)


def page(found: Sequence[Measured], command: str) -> str:
    """All that is known, in the order of the list, and what is not."""
    places = list(LISTED)
    known = sorted(
        (each for each in found if each.name in LISTED), key=lambda each: places.index(each.name)
    )
    seen, unseen = (
        [each for each in known if each.exercised is wanted] for wanted in (True, False)
    )
    missing = ", ".join(f"`{name}`" for name in LISTED if name not in {each.name for each in known})
    sections = {
        "How far each may be from its value": "\n".join(table(seen)) if seen else "",
        "Values that judge more rightly, and nothing worse": _better(seen),
        "Not exercised": f"{NOT_EXERCISED}\n\n" + "\n".join(map(_asked, unseen)) if unseen else "",
        "Not measured yet": missing,
        "What each is for": "\n".join(map(_asked, seen)),
    }
    head = [
        "# Constants, measured",
        _made(known, command),
        READING.read_text(encoding="utf-8").strip(),
    ]
    return (
        "\n\n".join(head + [f"## {title}\n\n{text}" for title, text in sections.items() if text])
        + "\n"
    )


def _made(known: Sequence[Measured], command: str) -> str:
    judged = " or ".join(map(str, sorted({each.checks for each in known})))
    return (
        f"Made by `{command}` with torch {torch.__version__.partition('+')[0]} and Python "
        f"{platform.python_version()} on the CPU: {len(known)} of {len(LISTED)} constants, each "
        f"judged by {judged or 'no'} checks at every value."
    )


def _better(seen: Sequence[Measured]) -> str:
    return (
        "\n".join(
            f"- `{each.name}` {change}: {said(each.tried[change])}"
            for each in seen
            for change in each.better
        )
        or "None."
    )


def _asked(each: Measured) -> str:
    listed = LISTED[each.name]
    by = "all checks" if listed.on == EVERY else f"the {listed.on[0]} ones"
    return f"- `{each.name}`, by {by}: {listed.question}"
