"""Numbers as text for a person: short, but two different numbers to compare never look equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DIGITS = 6
MOST_DIGITS = 12
"""The most digits: two such numbers, their errors and names still fit into 80 columns."""


def number(value: float, digits: int = DIGITS) -> str:
    """Return six significant digits: 0.785398, -1.23457e-05, 2, nan, inf; both zeros as 0."""
    return f"{value + 0.0:.{digits}g}"  # -0.0 + 0.0 is 0.0


def pair(
    analytic: float, numeric: float, choices: Iterable[int] = range(DIGITS, MOST_DIGITS + 1)
) -> tuple[str, str]:
    """Return both numbers with as many digits, of these `choices`, as show that they differ."""
    texts = "", ""
    for digits in choices:
        texts = number(analytic, digits), number(numeric, digits)
        if texts[0] != texts[1] or analytic == numeric:
            break
    return texts


def error(value: float) -> str:
    """Return three significant digits."""
    return f"{value:.3g}"


def bar(value: float) -> str:
    """Return two significant digits."""
    return f"{value:.2g}"


def ratio(value: float, of: float) -> str:
    """Return `value` / `of` with three digits; inf if `of` is 0 and `value` is not."""
    if of == 0:
        return error(float("inf") if value > 0 else 0.0 if value == 0 else value)
    return error(value / of)


def seconds(value: float) -> str:
    """Return a measured time: 0.02 s, 75.3 s, with hundredths below ten seconds, else tenths."""
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def duration(seconds: float) -> str:
    """Return a predicted time, to two digits: 0.012 s, 3.4 s, 12 min."""
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0.001):.2g} s"


def limit(seconds: float) -> str:
    """Return a given limit, exactly: 0.5 s, 150 s."""
    return f"{seconds:.12g} s"


def memory(size: float) -> str:
    """Return a predicted size: 1.5 GiB, or 12 MiB below 0.1 GiB."""
    if size >= 0.1 * 2**30:
        return f"{size / 2**30:.1f} GiB"
    return f"{max(1, round(size / 2**20))} MiB"


def some(names: Sequence[str], most: int) -> str:
    """Return the first names: a, b, c and 3 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 element, 62 elements, 67,108,864 elements."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
