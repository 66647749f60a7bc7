"""Values of options: what is allowed, and one sentence for what is not."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from gradverify.model.problem import Problem, ProblemsError
from gradverify.spec.fault import RETIRED
from gradverify.spec.fault import nearest as nearest_name

T = TypeVar("T")

DEVICE = re.compile(r"cpu|auto|cuda(:\d+)?")
SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMGTkmgt]?)(i?[Bb])?")
WHOLE = re.compile(r"\d{1,19}", re.ASCII)
PART = re.compile(r"(\d{1,5})/(\d{1,5})", re.ASCII)
MOST_COUNTED, MOST_JOBS = 10_000, 1024
LARGEST_SIZE = 2.0**60      # bytes; what a system takes as a limit is below 2**63
UNDECIDED = ("warn", "fail")
Reader = Callable[[str, str], Any]


class Refused(Exception):  # noqa: N818
    """An option's value is not allowed; the sentence to show."""


def settled(readings: Iterable[tuple[str, str | None, Callable[[str, str], T]]]) -> dict[str, T]:
    """(option, text or None, reader) for each option → option: value, for those given. Raises ProblemsError with every refusal."""
    return dict(each_settled(readings))


def each_settled(readings: Iterable[tuple[str, str | None, Callable[[str, str], T]]]) -> list[tuple[str, T]]:
    """The same for options that may be given several times: (option, value) in their order."""
    values: list[tuple[str, T]] = []
    problems = []
    for option, text, read in readings:
        try:
            values += [] if text is None else [(option, read(option, text))]
        except Refused as refusal:
            problems.append(Problem(str(refusal)))
    if problems:
        raise ProblemsError(problems)
    return values


def _number(what: str, *, zero: bool = False, auto: bool = False) -> Reader:
    """A reader for finite numbers above 0, or from it."""
    def read(option: str, text: str) -> float | str:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if auto and text == "auto":
            return text
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise Refused(f"{option} {text!r}: must be {what}")
        return value

    return read


def _whole(what: str, least: int, most: int, auto: Callable[[], int | None] = lambda: None) -> Reader:
    """A reader for whole numbers; `auto`: what that word stands for, if anything."""
    def read(option: str, text: str) -> int:
        number = auto() if text == "auto" else int(text) if WHOLE.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise Refused(f"{option} {text!r}: must be {what}")
        return number

    return read


step = _number("`auto` or a finite number above 0", auto=True)
tolerance = _number("a finite number, 0 or above", zero=True)
duration = _number("a finite number of seconds above 0")
seed = _whole("a whole number from 0 to 2**63 - 1", 0, 2**63 - 1)      # what torch.Generator.manual_seed takes
jobs = _whole(f"`auto` or a whole number from 1 to {MOST_JOBS}", 1, MOST_JOBS, lambda: os.cpu_count() or 1)


def count_from(least: int) -> Reader:
    """A reader for whole numbers from `least` to MOST_COUNTED."""
    return _whole(f"a whole number from {least} to {MOST_COUNTED}", least, MOST_COUNTED)


def device(option: str, text: str) -> str:
    if not DEVICE.fullmatch(text):
        raise Refused(f"{option} {text!r}: must be cpu, cuda, cuda:N or auto{nearest(text, ('cpu', 'cuda', 'auto'))}")
    return text


def part(option: str, text: str) -> tuple[int, int]:
    """`I/N`: which part, from 1, of how many."""
    match = PART.fullmatch(text)
    index, count = (int(number) for number in match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise Refused(f"{option} {text!r}: must be I/N, whole numbers with I from 1 to N, such as 2/4")
    return index, count


def size(option: str, text: str) -> int:
    """Bytes: a number, or one with a unit such as 512M or 2GiB (powers of 1024)."""
    match = SIZE.fullmatch(text)
    found = float(match["number"]) * 1024 ** " KMGT".index(match["unit"].upper() or " ") if match else 0.0
    if not 1 <= found < LARGEST_SIZE:
        raise Refused(f"{option} {text!r}: must be a size such as 512M or 2G" + (", below 1048576T" if found > 1 else ""))
    return int(found)


def one_of(allowed: Sequence[str]) -> Reader:
    """A reader for exactly these words."""
    def read(option: str, text: str) -> str:
        if text not in allowed:
            raise Refused(f"{option} {text!r}: must be one of {', '.join(allowed)}{nearest(text, allowed)}")
        return text

    return read


def rules(option: str, text: str) -> tuple[str, ...]:
    """Codes of rules or their beginnings, separated by commas; there is a rule for each."""
    from gradverify.rules.catalogue import codes

    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in parts:
        if not any(code.startswith(part) for code in codes()):
            raise Refused(f"{option} {part!r}: no rule has a code that begins so{nearest(part, codes())}")
    return parts


def nearest(text: str, allowed: Iterable[str]) -> str:
    """Return the nearest allowed word, or the one meant by a word of other programs (`gpu`)."""
    if text in RETIRED:
        return f"; {RETIRED[text]}"
    close = nearest_name(text, tuple(allowed))
    return f"; did you mean {close}?" if close else ""
