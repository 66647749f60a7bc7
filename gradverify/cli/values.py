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
COUNT = re.compile(r"\d{1,9}", re.ASCII)
MOST_COUNTED = 10_000
PART = re.compile(r"(\d{1,5})/(\d{1,5})", re.ASCII)
MOST_JOBS = 1024
LARGEST_SIZE = 2.0**60      # bytes; what a system takes as a limit is below 2**63
LARGEST_SEED = 2**63 - 1
"""What torch.Generator.manual_seed takes."""


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
        if text is None:
            continue
        try:
            values.append((option, read(option, text)))
        except Refused as refusal:
            problems.append(Problem(str(refusal)))
    if problems:
        raise ProblemsError(problems)
    return values


def step(option: str, text: str) -> float | str:
    """`auto` or a finite number above 0."""
    if text == "auto":
        return text
    value = _float(text)
    if value is None or not value > 0:
        raise Refused(f"{option} {text!r}: must be `auto` or a finite number above 0")
    return value


def tolerance(option: str, text: str) -> float:
    """A finite number, 0 or above."""
    value = _float(text)
    if value is None or not value >= 0:
        raise Refused(f"{option} {text!r}: must be a finite number, 0 or above")
    return value


def seed(option: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= LARGEST_SEED:
        raise Refused(f"{option} {text!r}: must be a whole number from 0 to 2**63 - 1")
    return value


def device(option: str, text: str) -> str:
    if not DEVICE.fullmatch(text):
        raise Refused(f"{option} {text!r}: must be cpu, cuda, cuda:N or auto{nearest(text, ('cpu', 'cuda', 'auto'))}")
    return text


def jobs(option: str, text: str) -> int:
    """A count of processes; `auto`: one for each processor."""
    if text == "auto":
        return os.cpu_count() or 1
    if not text.isdecimal() or not 1 <= int(text) <= MOST_JOBS:
        raise Refused(f"{option} {text!r}: must be `auto` or a whole number from 1 to {MOST_JOBS}")
    return int(text)


def count_from(least: int) -> Callable[[str, str], int]:
    """A reader for whole numbers from `least` to MOST_COUNTED."""
    def read(option: str, text: str) -> int:
        if not COUNT.fullmatch(text) or not least <= int(text) <= MOST_COUNTED:
            raise Refused(f"{option} {text!r}: must be a whole number from {least} to {MOST_COUNTED}")
        return int(text)

    return read


def part(option: str, text: str) -> tuple[int, int]:
    """`I/N`: which part, from 1, of how many."""
    match = PART.fullmatch(text)
    index, count = (int(number) for number in match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise Refused(f"{option} {text!r}: must be I/N, whole numbers with I from 1 to N, such as 2/4")
    return index, count


def duration(option: str, text: str) -> float:
    """Seconds, above 0."""
    value = _float(text)
    if value is None or not value > 0:
        raise Refused(f"{option} {text!r}: must be a finite number of seconds above 0")
    return value


def size(option: str, text: str) -> int:
    """Bytes: a number, or one with a unit such as 512M or 2GiB (powers of 1024)."""
    match = SIZE.fullmatch(text)
    found = float(match["number"]) * 1024 ** " KMGT".index(match["unit"].upper() or " ") if match else 0.0
    if not 1 <= found < LARGEST_SIZE:
        raise Refused(f"{option} {text!r}: must be a size such as 512M or 2G" + (", below 1048576T" if found > 1 else ""))
    return int(found)


def one_of(allowed: Sequence[str]) -> Callable[[str, str], str]:
    """A reader for exactly these words."""
    def read(option: str, text: str) -> str:
        if text not in allowed:
            raise Refused(f"{option} {text!r}: must be one of {', '.join(allowed)}{nearest(text, allowed)}")
        return text

    return read


def code_list(codes: Sequence[str]) -> Callable[[str, str], tuple[str, ...]]:
    """A reader for codes or their beginnings, separated by commas; each must stand for at least one of `codes`."""
    def read(option: str, text: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        for part in parts:
            if not any(code.startswith(part) for code in codes):
                raise Refused(f"{option} {part!r}: no rule has a code that begins so{nearest(part, codes)}")
        return parts

    return read


def nearest(text: str, allowed: Iterable[str]) -> str:
    """Return the nearest allowed word, or the one meant by a word of other programs (`gpu`)."""
    if text in RETIRED:
        return f"; {RETIRED[text]}"
    close = nearest_name(text, tuple(allowed))
    return f"; did you mean {close}?" if close else ""


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
