"""Problems in what the user wrote (a spec, the configuration, an option), and the exit codes of a
run. Quick to import."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its place, and a message with what is allowed instead. `line` and `column` count
    from 1; `text`: the source line."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str | None = None
    text: str | None = None

    def __str__(self) -> str:
        """Return `file:line:column: path: message`, then the source line and a caret under the
        column."""
        place = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        head = ": ".join(part for part in (place, self.path, self.message) if part)
        if self.text is None or self.column is None:
            return head
        margin = "".join("\t" if c == "\t" else " " for c in self.text[: self.column - 1])
        return f"{head}\n    {self.text}\n    {margin}^"


class ProblemsError(Exception):
    """Raised with every problem found, or one sentence. The command line prints them and exits with
    2."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        self.problems = (Problem(problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


OK, WRONG, USAGE, NOT_JUDGED, INTERNAL, NOTHING_CHECKED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
SIGNALLED = 128  # plus the number of the signal that ended a run: 130, 143
# The codes that `--exit-zero` turns into 0; not those of usage, faults and interrupts
OF_VERDICTS = (WRONG, NOT_JUDGED, NOTHING_CHECKED)
