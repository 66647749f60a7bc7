"""A report whose every text can be shown anywhere: what would command a terminal, or cannot be encoded, is written as an escape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from gradverify.report.names import clean, one_line, uncolored

T = TypeVar("T")

LINES = frozenset({"message", "detail", "hint", "reason", "source", "text", "trace", "crashed"})
"""Fields that may have several lines; names, paths and everything else stay on one."""


def readable(value: T) -> T:
    """A report, or a part of one, with the same numbers. What is fit to be read already is not copied."""
    seen: T = _of(value, "")
    return seen


def _of(value: Any, field: str) -> Any:
    if isinstance(value, str):
        return uncolored(value) if field == "captured" else clean(value) if field in LINES else one_line(value)
    if isinstance(value, tuple):
        items = tuple(_of(item, field) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, Mapping):
        return {_of(name, field): _of(item, field) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: (getattr(value, each.name), each.name) for each in fields(value)}
        changed = {name: new for name, (old, _) in found.items() if (new := _of(old, name)) is not old}
        return replace(value, **changed) if changed else value
    return value
