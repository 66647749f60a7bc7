"""The tables of `env --show-config`: each value, the place that names it, and the values of other places that it overrides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradverify.model.case import Json
from gradverify.model.codec import to_json
from gradverify.report.listing import rows
from gradverify.report.look import Look
from gradverify.report.names import one_line

HEADERS = ("key", "value", "from", "over")
DEFAULT = "default"
ALL = ("outputs", "select")
"""Where nothing named means everything."""


@dataclass(frozen=True, slots=True)
class Word:
    """A value, and the place that names it."""

    value: Json
    origin: str


@dataclass(frozen=True, slots=True)
class Said:
    """A key with the value that counts, and those it overrides, the nearest first."""

    name: str
    value: Json
    origin: str
    over: tuple[Word, ...] = ()


def project_text(said: Sequence[Said], look: Look) -> str:
    """All keys of `[tool.gradverify]`."""
    return rows(HEADERS, [_cells(each) for each in said], look)


def checks_text(checks: Mapping[str, Sequence[Said]], look: Look) -> str:
    """By check: its settings, all of them where there is one check, else those that somebody named. In the plain format the id begins each line."""
    shown = checks if len(checks) == 1 else {id: [each for each in said if each.origin != DEFAULT] for id, said in checks.items()}
    if not look.boxes:
        return rows((), [(id, *_cells(each)) for id, said in shown.items() for each in said], look)
    return "\n".join(f"{one_line(id)}\n{rows(HEADERS, [_cells(each) for each in said], look) if said else 'nothing but defaults' + chr(10)}"
                     for id, said in shown.items())


def as_json(file: str | None, project: Sequence[Said], checks: Mapping[str, Sequence[Said]]) -> str:
    data = {"file": file, "project": to_json(project), "checks": [{"id": id, "settings": to_json(said)} for id, said in checks.items()]}
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _cells(said: Said) -> tuple[str, str, str, str]:
    is_all = not said.value and said.name.rpartition(".")[2] in ALL
    return said.name, "all" if is_all else _shown(said.value), said.origin, ", ".join(f"{_shown(word.value)} ({word.origin})" for word in said.over)


def _shown(value: Json) -> str:
    """As it would be written, but for what is not there."""
    if value is None or value == [] or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items() if item is not None)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
