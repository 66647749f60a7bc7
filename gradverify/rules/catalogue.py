"""The rule book without importing a rule: codes and names from the file names, pages and what a rule declares from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from gradverify.model.result import Calls
from gradverify.model.rule import RuleInfo

OWN = ("code", "name", "message", "page", "module")     # told by the file's name and docstring; all else is declared
_FILE = re.compile(r"gv(?P<number>\d{3})_(?P<name>\w+)\.py")
_FOLDER = Path(__file__).parent
_DECLARED = {field.name.upper(): field.name for field in fields(RuleInfo) if field.name not in OWN}


def codes() -> tuple[str, ...]:
    """All rule codes in order; reads file names only."""
    return tuple(f"GV{match['number']}" for match in _matches())


@cache
def rules() -> tuple[RuleInfo, ...]:
    """The whole book in the order of the codes."""
    return tuple(_read(match) for match in _matches())


@cache
def book() -> Mapping[str, RuleInfo]:
    """The rules by code."""
    return {info.code: info for info in rules()}


@cache
def asked() -> tuple[RuleInfo, ...]:
    """The rules that look at a subject, in the order in which they are asked."""
    return tuple(sorted((info for info in rules() if info.order is not None), key=lambda info: (info.order or 0, info.code)))


def rule(code: str) -> RuleInfo | None:
    """One rule by its code or by its name; None where there is none."""
    asked = code.strip().lower().replace("_", "-")
    return next((_read(match) for match in _matches() if asked in (number := f"gv{match['number']}", _name(match), f"{number}-{_name(match)}")), None)


def names() -> tuple[str, ...]:
    """All rule names in the order of their codes; reads file names only."""
    return tuple(_name(match) for match in _matches())


def _name(match: re.Match[str]) -> str:
    return match["name"].replace("_", "-")


def _matches() -> list[re.Match[str]]:
    found = (_FILE.fullmatch(path.name) for path in sorted(_FOLDER.iterdir()))
    return [match for match in found if match]


def _read(match: re.Match[str]) -> RuleInfo:
    tree = ast.parse((_FOLDER / match[0]).read_text(encoding="utf-8"))
    page = ast.get_docstring(tree) or ""
    declared = {_DECLARED[name]: value for name, value in _constants(tree)}
    if "price" in declared:
        declared["price"] = Calls(*declared["price"])
    return RuleInfo(f"GV{match['number']}", _name(match), page.partition("\n")[0].partition(": ")[2], page, match[0].removesuffix(".py"), **declared)


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Plain values that a module gives names, several on a line too."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        pairs = zip(target.elts, value.elts, strict=False) if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) else [(target, value)]
        for name, each in pairs:
            if isinstance(name, ast.Name) and name.id in _DECLARED:
                yield name.id, ast.literal_eval(each)
