"""Which hand-written backwards have a check, and which of their arguments none differentiates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradverify.model.problem import NOTHING_CHECKED, OK, WRONG

COVERAGE_VERSION = 1


@dataclass(frozen=True, slots=True)
class CoveredFunction:
    """One autograd Function, or operator with a backward of its own.

    `checks`: ids of the checks that name it; `through`: of those that name a callable or module whose code calls it; `undifferentiated`: the
    arguments that a gradient could be asked for and none of `checks` differentiates, None where that cannot be known (no check names it, or a
    check's inputs are made in Python); `note`: why no spec can name it.
    """

    name: str
    kind: Literal["autograd.Function", "operator"]
    file: str
    line: int
    backward: int | None
    arguments: tuple[str, ...]
    checks: tuple[str, ...]
    through: tuple[str, ...]
    undifferentiated: tuple[str, ...] | None
    note: str | None = None

    @property
    def checked(self) -> bool:
        return bool(self.checks or self.through)


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """`percent` of the functions are checked; `unreadable`: files that are no Python that this interpreter reads, with the reason."""

    coverage_version: int
    version: str
    exit_code: int
    total: int
    checked: int
    percent: float | None
    fail_under: float
    functions: tuple[CoveredFunction, ...]
    unreadable: tuple[tuple[str, str], ...]


def coverage_report(functions: Sequence[CoveredFunction], unreadable: Sequence[tuple[str, str]], *, version: str,
                    fail_under: float) -> CoverageReport:
    """Nothing found is NOTHING_CHECKED, a share below `fail_under` percent WRONG."""
    checked = sum(function.checked for function in functions)
    percent = 100 * checked / len(functions) if functions else None
    code = NOTHING_CHECKED if percent is None else WRONG if percent < fail_under else OK
    return CoverageReport(COVERAGE_VERSION, version, code, len(functions), checked, percent, fail_under, tuple(functions), tuple(unreadable))
