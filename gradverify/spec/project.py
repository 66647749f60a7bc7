"""`[tool.gradverify]` of the nearest pyproject.toml: where the specs are, and a project's own defaults."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import Field

from gradverify.model.problem import Problem
from gradverify.spec.fault import Fault, dotted
from gradverify.spec.schema_settings import RunSettings
from gradverify.spec.settings import Layer, layer_of
from gradverify.spec.unsupported import settings_faults
from gradverify.spec.values import UNSAID, Strict, Text
from gradverify.spec.wording import validated

FILE = "pyproject.toml"
TABLE = "tool.gradverify"


class Table(Strict):
    """What `[tool.gradverify]` may hold."""

    paths: list[Text] = Field([], description="Spec files and folders, relative to the pyproject.toml; what `check` runs without paths.")
    defaults: RunSettings = Field(UNSAID, description="Settings of every check that says nothing else.")


@dataclass(frozen=True, slots=True)
class Project:
    """`folder` holds the pyproject.toml; None where there is none."""

    folder: FilePath | None = None
    paths: tuple[str, ...] = ()
    layer: Layer = field(default_factory=lambda: Layer(FILE))
    problems: tuple[Problem, ...] = ()


def project_of(cwd: FilePath) -> Project:
    """The project around `cwd`: the nearest pyproject.toml at or above it, whether or not it speaks of gradverify."""
    folder = folder_of(cwd)
    return Project() if folder is None else _read(folder / FILE)


def folder_of(start: FilePath) -> FilePath | None:
    """The folder of the nearest pyproject.toml at or above `start`."""
    return next((folder for folder in (start, *start.parents) if (folder / FILE).is_file()), None)


def _read(file: FilePath) -> Project:
    try:
        text = file.read_text(encoding="utf-8")
        table: Any = tomllib.loads(text)
        for part in TABLE.split("."):
            table = table.get(part, {})
    except (OSError, ValueError, AttributeError) as error:
        return Project(file.parent, problems=(Problem(f"cannot be read: {error}", str(file)),))
    checked = validated(Table, table, ())
    typed = checked if isinstance(checked, tuple) else ()
    defaults = table.get("defaults", {}) if isinstance(table, dict) else {}
    faults = (*typed, *(() if typed else settings_faults(defaults, ("defaults",))))
    if faults or not isinstance(checked, Table):
        return Project(file.parent, problems=tuple(_problem(fault, file, text) for fault in faults))
    layer = layer_of(checked.defaults, FILE) if checked.defaults is not None else Layer(FILE)
    return Project(file.parent, tuple(checked.paths), layer)


def _problem(fault: Fault, file: FilePath, text: str) -> Problem:
    """The fault with the line of its key: the last word of its path that stands before a `=` or in a header below `[tool.gradverify`."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip().startswith(f"[{TABLE}")), 0)
    names = [part for part in fault.path if isinstance(part, str)]
    path = f"{TABLE}.{dotted(fault.path)}" if fault.path else TABLE
    for name in reversed(names):
        for number in range(start, len(lines)):
            match = re.search(rf"(?<![\w-]){re.escape(name)}(?=[\s\"']*=|[\s.\"'\w]*\])", lines[number])
            if match:
                return Problem(fault.message, str(file), number + 1, match.start() + 1, path, lines[number])
    return Problem(fault.message, str(file), path=path)
