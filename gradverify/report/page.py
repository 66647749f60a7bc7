"""A rule with its page, as reports that show such pages need it: their caller hands the rules over, because the catalogue lies above this floor."""

from __future__ import annotations

from typing import Protocol


class Page(Protocol):
    """A rule with its page, as `explain` shows it."""

    @property
    def code(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def page(self) -> str: ...
