"""What every rule file offers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding


class NotApplicable(Exception):     # noqa: N818 - no error: an answer
    """Raised by `check` where only the measurement shows that the rule cannot run; its text says why, in a few words."""


class Rule(Protocol):
    """A module of this folder named gvNNN_name.py. The catalogue has its row, pages/gvNNN_name.md is its page."""

    def applies(self, evidence: Evidence, found: frozenset[str]) -> str | None:
        """None where the rule can run; else why not, in a few words. `found` are the codes found so far."""

    def check(self, evidence: Evidence) -> Iterator[Finding | Comparison | str]:
        """What is wrong, what was compared, and (as text) what `-v` is to say of a rule that ran. May raise NotApplicable."""
