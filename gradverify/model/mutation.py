"""Results of mutating analytic gradients (`mutate`): plain data without tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gradverify.model.problem import INTERRUPTED, NOT_JUDGED, NOTHING_CHECKED, OK, WRONG

Fate = Literal["killed", "survived", "unseen", "equivalent"]
"""The fate of a mutant. killed: a check finds it. survived: it changes the gradient at a check's
inputs, and passes. unseen: it changes nothing at these inputs, but would at others. equivalent: it
changes nothing at any inputs that were tried, as far as could be seen; it is not counted."""

BEST: tuple[Fate, ...] = ("killed", "survived", "unseen", "equivalent")
"""The fates by rank: of several checks of one function with the same damage the first one
counts."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One damage to the gradients of `inputs` (empty: of all) in one check. `by`: the code of the
    rule that found it; `why`: why no rule did, and what would find it."""

    damage: str
    inputs: tuple[str, ...]
    fate: Fate
    by: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MutatedCheck:
    """One check with all its mutants. `left_out`: why it was not mutated; `broken`: it does not
    pass unmutated, though it should."""

    id: str
    name: str
    function: str
    mutants: tuple[Mutant, ...] = ()
    left_out: str | None = None
    broken: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One damage to one function: its fate under all checks together; `by` and `why` are of the
    check `check`."""

    function: str
    damage: str
    inputs: tuple[str, ...]
    fate: Fate
    check: str
    by: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of outcomes by fate."""

    killed: int
    survived: int
    unseen: int
    equivalent: int

    @property
    def counted(self) -> int:
        """The number of outcomes without the equivalent ones."""
        return self.killed + self.survived + self.unseen

    @property
    def let_through(self) -> int:
        """The number of outcomes that no check finds."""
        return self.survived + self.unseen


@dataclass(frozen=True, slots=True)
class MutationReport:
    """A finished (or interrupted) run. `share`: the killed in percent of the counted
    outcomes; None if there are none."""

    schema_version: int
    version: str
    argv: tuple[str, ...]
    duration_s: float
    exit_code: int
    interrupted: bool
    share: float | None
    counts: Counts
    damage: tuple[Outcome, ...]
    checks: tuple[MutatedCheck, ...]


def outcomes(checks: Iterable[MutatedCheck]) -> tuple[Outcome, ...]:
    """Return every damage to every function once, in the order of first occurrence."""
    found: dict[tuple[str, str, tuple[str, ...]], Outcome] = {}
    for check in checks:
        for m in check.mutants:
            key = (check.function, m.damage, m.inputs)
            new = Outcome(check.function, m.damage, m.inputs, m.fate, check.id, m.by, m.why)
            if BEST.index(new.fate) < BEST.index(found.setdefault(key, new).fate):
                found[key] = new
    return tuple(found.values())


def counts(found: Iterable[Outcome]) -> Counts:
    fates = [outcome.fate for outcome in found]
    return Counts(*(fates.count(fate) for fate in BEST))


def report(
    checks: Iterable[MutatedCheck],
    *,
    version: str,
    argv: tuple[str, ...],
    duration: float,
    fail_under: float = 0.0,
    interrupted: bool = False,
) -> MutationReport:
    """Return the report of all checks of a run. Exit code 1 for a share below `fail_under`, 3 for a
    check that should pass and does not, 5 if nothing was mutated."""
    checks = tuple(checks)
    found = outcomes(checks)
    counted = counts(found)
    share = 100.0 * counted.killed / counted.counted if counted.counted else None
    code = NOTHING_CHECKED if share is None else OK
    if interrupted:
        code = INTERRUPTED
    elif share is not None and share < fail_under:
        code = WRONG
    elif any(check.broken for check in checks):
        code = NOT_JUDGED
    return MutationReport(
        1, version, argv, duration, code, interrupted, share, counted, found, checks
    )
