"""Readers for values of options, with one sentence for a value that is not allowed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradverify.model.problem import Problem, ProblemsError
from gradverify.spec.fault import nearest as nearest_name

DEVICE = re.compile(r"cpu|auto|cuda(:\d+)?")
WHOLE = re.compile(r"\d{1,19}", re.ASCII)
PART = re.compile(r"(\d{1,5})/(\d{1,5})", re.ASCII)
MOST_COUNTED, MOST_JOBS = 10_000, 1024
UNDECIDED = ("warn", "fail")
Reader = Callable[[str, str], Any]


class Refused(Exception):  # noqa: N818
    """Raised for a value that is not allowed; the message is the sentence to show."""


def settled(readings: Iterable[tuple[str, str | None, Reader]]) -> list[tuple[str, Any]]:
    """Return (option, value) for those of (option, text or None, reader) that have a text. Raises
    ProblemsError with all values that are not allowed."""
    values = list[tuple[str, Any]]()
    problems = []
    for option, text, read in readings:
        try:
            values += [] if text is None else [(option, read(option, text))]
        except Refused as refusal:
            problems.append(Problem(str(refusal)))
    if problems:
        raise ProblemsError(problems)
    return values


def duration(option: str, text: str) -> float:
    """Read a duration in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise Refused(f"{option} {text!r}: must be a finite number of seconds above 0")
    return value


def whole(least: int, most: int, auto: Callable[[], int | None] = lambda: None) -> Reader:
    """Return a reader for whole numbers. `auto`: gives the value of the word `auto`, None if it is
    not allowed."""

    def read(option: str, text: str) -> int:
        number = auto() if text == "auto" else int(text) if WHOLE.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise Refused(
                f"{option} {text!r}: must be {'' if auto() is None else '`auto` or '}a whole "
                f"number from {least} to {most}"
            )
        return number

    return read


jobs = whole(1, MOST_JOBS, lambda: os.cpu_count() or 1)


def count_from(least: int) -> Reader:
    """Return a reader for whole numbers from `least` to MOST_COUNTED."""
    return whole(least, MOST_COUNTED)


def device(option: str, text: str) -> str:
    if not DEVICE.fullmatch(text):
        raise Refused(
            f"{option} {text!r}: must be cpu, cuda, cuda:N or "
            f"auto{nearest(text, ('cpu', 'cuda', 'auto'))}"
        )
    return text


def part(option: str, text: str) -> tuple[int, int]:
    """Read `I/N`: the part, from 1, and the number of parts."""
    match = PART.fullmatch(text)
    index, count = (int(number) for number in match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise Refused(
            f"{option} {text!r}: must be I/N, whole numbers with I from 1 to N, such as 2/4"
        )
    return index, count


def one_of(allowed: Sequence[str]) -> Reader:
    """Return a reader for exactly these words."""

    def read(option: str, text: str) -> str:
        if text not in allowed:
            raise Refused(
                f"{option} {text!r}: must be one of {', '.join(allowed)}{nearest(text, allowed)}"
            )
        return text

    return read


def nearest(text: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest allowed word, or the equivalent of a word of
    other programs (`gpu`); empty if there is none."""
    close = nearest_name(text, tuple(allowed))
    return f"; did you mean {close}?" if close else ""
