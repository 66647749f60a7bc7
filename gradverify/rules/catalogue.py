"""The rule book: the declarations of all rules (book.toml) in the order in which rules run, and
their pages. No module of a rule is imported for either.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gradverify.model.result import Calls
from gradverify.model.rule import RuleInfo

PAGES = Path(__file__).parent / "pages"
BOOK = Path(__file__).parent / "book.toml"


@cache
def _table() -> tuple[RuleInfo, ...]:
    """Return all rules in the order in which they run, without their pages."""
    rows: list[dict[str, Any]] = tomllib.loads(BOOK.read_text(encoding="utf-8"))["rule"]
    return tuple(
        RuleInfo(**{**row, "price": Calls(*row["price"]) if "price" in row else None})
        for row in rows
    )


def codes() -> tuple[str, ...]:
    """Return all rule codes in ascending order."""
    return tuple(sorted(info.code for info in _table()))


def names() -> tuple[str, ...]:
    """Return all rule names in the order of their codes."""
    return tuple(info.name for info in rules())


@cache
def book() -> Mapping[str, RuleInfo]:
    """Return the rules with their pages, by code, in the order of the codes."""
    return {info.code: _with_page(info) for info in sorted(_table(), key=lambda info: info.code)}


def rules() -> tuple[RuleInfo, ...]:
    """Return all rules with their pages, in the order of the codes."""
    return tuple(book().values())


@cache
def runnable() -> tuple[RuleInfo, ...]:
    """Return the rules that examine a subject, in the order in which they run."""
    return tuple(book()[info.code] for info in _table() if info.asked)


def rule(code: str) -> RuleInfo | None:
    """Return the rule with this code or name; None where there is none."""
    wanted = code.strip().lower().replace("_", "-")
    return next(
        (
            info
            for info in rules()
            if wanted in (number := info.code.lower(), info.name, f"{number}-{info.name}")
        ),
        None,
    )


def _with_page(info: RuleInfo) -> RuleInfo:
    page = (PAGES / f"{info.module}.md").read_text(encoding="utf-8").rstrip("\n")
    return replace(info, page=page, message=page.partition("\n")[0].partition(": ")[2])
