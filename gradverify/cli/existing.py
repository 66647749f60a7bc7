"""Specs that are there already, for `init`: which functions they check, and more checks at the end of their lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.gather import gather
from gradverify.model.problem import Problem, ProblemsError
from gradverify.spec.document import Document, decode, read
from gradverify.spec.scaffold import takes_more

if TYPE_CHECKING:
    from gradverify.cli.targets import Goal

OTHERWISE = "it stays as it is: --force writes it anew, -o another file"


@dataclass(frozen=True, slots=True)
class Existing:
    """`names`: of its checks; `open`: the goals that it neither checks nor mentions in a comment, as `init` leaves one where nothing runs yet."""

    document: Document
    text: str
    names: frozenset[str]
    open: tuple[Goal, ...]


def existing(file: Path, goals: Sequence[Goal]) -> Existing:
    """Raises ProblemsError where checks cannot be added."""
    gathered = gather([str(file)])
    document, text = read(file.as_posix(), file), "" if gathered.problems else decode(file.read_bytes())
    if not isinstance(document, Document) or not isinstance(text, str) or gathered.problems:
        first = next(iter(gathered.problems), Problem("it cannot be read"))
        raise _refused(file, f"and no spec that checks can be added to ({f'line {first.line}: ' if first.line else ''}{first.message})")
    if not takes_more(document):
        raise _refused(file, "and its `checks` are no list with a check in each line")
    checked = {case.target.replace(":", ".") for case in gathered.cases}
    mentioned = {words[-1] for line in document.lines if (words := line.split())[:3] == ["#", "-", "function:"]}
    missing = tuple(goal for goal in goals if goal.target.replace(":", ".") not in checked and goal.function not in mentioned)
    lacks = _lacking(document, "path", (goal.path_from(file) for goal in missing))
    lacks += _lacking(document, "import", (goal.imports for goal in missing))
    if lacks:
        raise _refused(file, f"and would need {' and '.join(lacks)} at its top")
    return Existing(document, text, frozenset(case.check for case in gathered.cases), missing)


def _lacking(document: Document, key: str, wanted: Iterable[Sequence[str]]) -> list[str]:
    """What the document does not say at its top, as it would be written there."""
    data = document.data if isinstance(document.data, dict) else {}
    said = data.get(key, [])
    said = said if isinstance(said, list) else [said]
    missing = [name for name in dict.fromkeys(name for names in wanted for name in names) if name not in said]
    return [f"`{key}: [{', '.join(map(str, said + missing))}]`"] if missing else []


def _refused(file: Path, why: str) -> ProblemsError:
    return ProblemsError([Problem(f"{file.as_posix()} is there already {why}; {OTHERWISE}")])
