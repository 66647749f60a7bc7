"""What a rule is: a function `gvNNN(evidence)` that yields what is wrong (Finding), what was compared (Comparison), and, as text, what `-v` is to
say of a rule that ran. What has to hold before it is asked is declared in the catalogue (`needs`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradverify.model.result import Comparison, Finding
from gradverify.subject.failure import UserCodeError

Findings = Iterator[Finding]
Told = Iterator[Finding | Comparison | str]
"""What a rule yields."""


class NotApplicable(Exception):  # noqa: N818 - no error: an answer
    """Raised by a rule where only the measurement shows that it cannot run; its text says why, in a few words."""


class Found(Exception):  # noqa: N818 - no error: an answer
    """Raised by a rule with the last of its findings."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


@contextmanager
def refused(
    code: str, when: str, hint: str | None = None, only: str = "", **about: Any
) -> Iterator[None]:
    """What the user's code raises inside is what the rule finds; with `only`, what is raised under that code, and what else is raised makes the rule
    not applicable. `about`: fields of the finding."""
    try:
        yield
    except UserCodeError as error:
        if only not in ("", error.code):
            raise NotApplicable(f"{when} {error.message}") from None
        raise Found(
            Finding(code, f"{when} {error.message}", frames=error.frames, hint=hint, **about)
        ) from None
