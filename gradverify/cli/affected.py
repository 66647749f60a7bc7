"""`--changed-from`, and the files of a hook: of the checks that were found, those that a change affects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.asked import Asked
from gradverify.model.case import Case
from gradverify.report.numbers import counted

if TYPE_CHECKING:
    from gradverify.running.changes import Changes

SHOWN = 20      # reasons that are told


@dataclass(frozen=True)
class Concerned:
    """`notes`: how many there are, and with `-v` why."""

    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()


def affected(cases: Sequence[Case], asked: Asked) -> Concerned:
    """All of them where no change was asked about. Raises ProblemsError where git cannot tell what changed."""
    changes = _changes(asked)
    if changes is None:
        return Concerned(tuple(cases))
    from gradverify.running.affected import reasons

    why = reasons(cases, changes, Path.cwd())
    told = [f"affected: {name}: {reason}" for name, reason in why.items()] if asked.verbose else []
    more = [f"affected: {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    notes = (_summary(len(why), cases, asked, changes), *told[:SHOWN], *more) if cases else ()
    return Concerned(tuple(case for case in cases if case.id in why), notes)


def _summary(count: int, cases: Sequence[Case], asked: Asked, changes: Changes) -> str:
    """A hook does not say of how many: it has not read all specs."""
    checks = f"{count or 'none'} of {counted(len(cases), 'check')}" if asked.changed_from else counted(count, "check") if count else "no check"
    return f"{checks} {'is' if count <= 1 else 'are'} affected by {counted(changes.count, 'changed file')}"


def _changes(asked: Asked) -> Changes | None:
    if asked.changed_from is None:
        return asked.changes
    from gradverify.running.changes import since

    return since(asked.changed_from, Path.cwd())
