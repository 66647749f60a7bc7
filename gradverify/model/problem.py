"""A fault in what a person wrote (a spec, the configuration, an option), and what the exit codes of
a run mean. Light to import."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, where it stands and what is allowed instead. `line` and `column` count from 1;
    `text` is the source line."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str | None = None
    text: str | None = None

    def __str__(self) -> str:
        """`file:line:column: path: message`, then the source line and a caret under its column."""
        place = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        head = ": ".join(part for part in (place, self.path, self.message) if part)
        if self.text is None or self.column is None:
            return head
        margin = "".join("\t" if c == "\t" else " " for c in self.text[: self.column - 1])
        return f"{head}\n    {self.text}\n    {margin}^"


class ProblemsError(Exception):
    """Raised with every problem found, or one sentence; the boundary prints them all and exits with
    2."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        self.problems = (Problem(problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


OK, WRONG, USAGE, NOT_JUDGED, INTERNAL, NOTHING_CHECKED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
SIGNALLED = 128  # and the number of the signal that ended a run: 130, 143
# What `--exit-zero` forgives; not usage, faults and interrupts
OF_VERDICTS = (WRONG, NOT_JUDGED, NOTHING_CHECKED)
