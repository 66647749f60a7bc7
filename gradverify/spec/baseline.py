"""The file of known findings: JSON that people review, sorted, without dates; read with every problem told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field

from gradverify.model.case import Json
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Known
from gradverify.spec.fault import dotted
from gradverify.spec.schema import Code, Strict, Text
from gradverify.spec.wording import validated

VERSION = 1
VERSION_KEY = "gradverify_baseline"


class Entry(Strict):
    """One known finding. `check`: the id, its spec relative to the folder of the file; `reason` is the reader's own."""

    check: Text
    code: Code
    input: str | None = None
    output: str | None = None
    message: str = ""
    reason: str = ""


class File(Strict):
    """The whole file."""

    gradverify_baseline: Annotated[int, Field(ge=VERSION, le=VERSION)]
    known: list[Entry]


def parse(text: str, file: str) -> tuple[Known, ...]:
    """The entries of a file, which is shown as `file`. Raises ProblemsError with every problem."""
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text.splitlines()[error.lineno - 1 :] else None
        raise ProblemsError([Problem(f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}", file, error.lineno, error.colno, text=line)]) from None
    except (ValueError, RecursionError) as error:       # an integer of more digits than Python reads, brackets deeper than it follows
        raise ProblemsError([Problem(f"no baseline: {error}", file)]) from None
    if not isinstance(data, dict) or VERSION_KEY not in data:
        raise ProblemsError([Problem(f"no baseline: it lacks the key {VERSION_KEY!r}, which --baseline-update writes", file)])
    if data[VERSION_KEY] != VERSION:
        raise ProblemsError([Problem(f"version {data[VERSION_KEY]!r} is unknown: this gradverify reads version {VERSION}", file, path=VERSION_KEY)])
    found = validated(File, data, ())
    if isinstance(found, tuple):
        raise ProblemsError([Problem(fault.message, file, path=dotted(fault.path)) for fault in found])
    return tuple(Known(**entry.model_dump()) for entry in found.known)


def render(entries: Iterable[Known]) -> str:
    """Sorted; what an entry does not say is left out."""
    ordered = sorted(entries, key=lambda each: (each.check, each.code, each.input or "", each.output or "", each.message))
    return json.dumps({VERSION_KEY: VERSION, "known": [_entry(each) for each in ordered]}, indent=2, ensure_ascii=False) + "\n"


def _entry(known: Known) -> dict[str, Json]:
    said = {field.name: getattr(known, field.name) for field in fields(known)}
    return {name: value for name, value in said.items() if value}
