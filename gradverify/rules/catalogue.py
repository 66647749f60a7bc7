"""The rule book: what every rule declares (book.toml), in the order in which rules are asked, and
its pages.

No rule is imported for either.
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
    """In the order in which rules are asked, without their pages."""
    rows: list[dict[str, Any]] = tomllib.loads(BOOK.read_text(encoding="utf-8"))["rule"]
    return tuple(
        RuleInfo(**{**row, "price": Calls(*row["price"]) if "price" in row else None})
        for row in rows
    )


def codes() -> tuple[str, ...]:
    """All rule codes in order."""
    return tuple(sorted(info.code for info in _table()))


def names() -> tuple[str, ...]:
    """All rule names in the order of their codes."""
    return tuple(info.name for info in rules())


@cache
def book() -> Mapping[str, RuleInfo]:
    """The rules by code, in the order of the codes, with their pages."""
    return {info.code: _with_page(info) for info in sorted(_table(), key=lambda info: info.code)}


def rules() -> tuple[RuleInfo, ...]:
    """The whole book in the order of the codes."""
    return tuple(book().values())


@cache
def asked() -> tuple[RuleInfo, ...]:
    """The rules that look at a subject, in the order in which they are asked."""
    return tuple(book()[info.code] for info in _table() if info.asked)


def rule(code: str) -> RuleInfo | None:
    """One rule by its code or by its name; None where there is none."""
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
