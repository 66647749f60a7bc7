"""`[tool.gradverify]` of the nearest pyproject.toml: the paths of specs, default settings, and
options for all runs of the project."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field

from gradverify.model.case import Json
from gradverify.model.problem import Problem
from gradverify.model.result import WORST
from gradverify.spec.build import name_faults
from gradverify.spec.fault import Fault, Path, dotted
from gradverify.spec.schema import (
    Auto,
    Device,
    Either,
    NotNegativeInteger,
    Rules,
    RunSettings,
    Settings,
    Strict,
    Text,
    key,
)
from gradverify.spec.settings import Layer, layer_of
from gradverify.spec.walk import PROJECT_FILE as FILE
from gradverify.spec.walk import folder_of
from gradverify.spec.wording import validated

TABLE: Path = ("tool", "gradverify")
DEFAULTS = "defaults"
REFUSED_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
WRITTEN = re.compile(r"\s*(\[+)?\s*([\w\s.'\"-]+?)\s*[\]=]")  # a header or a key
AS_YAML = re.compile(r"in YAML 1\.2 this is text: |; for example \{.*\}$")
"""Parts of messages about YAML that do not apply to TOML."""

AT_LEAST_1 = Annotated[int, Field(ge=1)]
JOBS = Annotated[int, Field(ge=1, lt=1025)]


class Table(Strict):
    """The keys of `[tool.gradverify]`: `paths`, `defaults`, and options of `check` under their
    names on the command line."""

    paths: list[Text] = key(
        "Spec files and folders, relative to the pyproject.toml; what `check` runs without paths.",
        ["specs"],
        default=[],
    )
    defaults: RunSettings = key("Settings of every check that says nothing else.")
    jobs: Annotated[JOBS | Auto, Either("a whole number of processes, or auto")] = key(
        "As `--jobs`."
    )
    maxfail: AT_LEAST_1 = key("As `--maxfail`.")
    undecided: Literal["warn", "fail"] = key("As `--undecided`.")
    fail_on_skip: bool = key("As `--fail-on-skip`.", alias="fail-on-skip")
    require_device: list[Device] = key("As `--require-device`.", ["cuda"], alias="require-device")
    baseline: Text = key("As `--baseline`; relative to the pyproject.toml.")
    report: list[Text] = key(
        "As `--report`; files relative to the pyproject.toml.", ["json:gradients.json"]
    )
    max_rows: Annotated[int, Field(ge=1, lt=WORST + 1)] = key("As `--max-rows`.", alias="max-rows")
    durations: NotNegativeInteger = key("As `--durations`.")

    def options(self) -> dict[str, Json]:
        """Return all keys but `paths` and `defaults`, under their names in the file."""
        names = {name: info.alias or name for name, info in type(self).model_fields.items()}
        return {
            names[name]: value
            for name, value in self.given().items()
            if name not in ("paths", DEFAULTS)
        }


OPTIONS = tuple(
    info.alias or name
    for name, info in Table.model_fields.items()
    if name not in ("paths", DEFAULTS)
)


@dataclass(frozen=True, slots=True)
class Project:
    """A project. `folder`: that of the pyproject.toml, None without one; `file`: its path as shown;
    `text`: its content.

    `options`: the options of `check` that it gives, by their names without leading dashes.
    """

    folder: FilePath | None = None
    paths: tuple[str, ...] = ()
    layer: Layer = field(default_factory=lambda: Layer(FILE))
    problems: tuple[Problem, ...] = ()
    options: Mapping[str, Json] = field(default_factory=dict)
    file: str = FILE
    text: str = ""

    @property
    def is_given(self) -> bool:
        """Whether the file has a table of gradverify with anything in it, or is invalid."""
        return bool(self.paths or self.layer.values or self.options or self.problems)

    def origin(self, *names: str) -> str:
        """Return the place of a key of the table: `pyproject.toml:12`."""
        line, *_ = _place(self.text, (*TABLE, *names))
        return f"{self.file}:{line}" if line else self.file

    def problem(self, fault: Fault) -> Problem:
        """Return a fault inside the table as a problem, with its line if the key is found."""
        full = (*TABLE, *fault.path)
        line, column, text = _place(self.text, full)
        return Problem(fault.message, self.file, line, column, dotted(full), text)


def _place(text: str, path: Path) -> tuple[int | None, int | None, str | None]:
    """Return line, column and text of the key at `path`, else of the nearest enclosing key that
    begins a line. `tomllib` gives no positions, so this reads line by line; it does not search
    inline tables."""
    found: tuple[int | None, int | None, str | None] = (None, None, None)
    table: Path = ()
    deepest = 0
    for number, line in enumerate(text.splitlines(), 1):
        match = WRITTEN.match(line)
        if match is None:
            continue
        names = tuple(name.strip(" \t'\"") for name in match[2].split("."))
        table, written = (names, names) if match[1] else (table, (*table, *names))
        if len(written) >= deepest and written == path[: len(written)]:
            found = (number, match.start(2) + match[2].rfind(names[-1]) + 1, line)
            deepest = len(written)
    return found


def project_of(
    cwd: FilePath, codes: Collection[str] | None = None, start: FilePath | None = None
) -> Project:
    """Return the project around `start` (by default `cwd`, which its file is shown relative to):
    the nearest pyproject.toml at or above it, with or without a table of gradverify. `codes`: all
    rule codes."""
    folder = folder_of(start or cwd)
    if folder is None:
        return Project()
    shown, text = FilePath(os.path.relpath(folder / FILE, cwd)).as_posix(), ""
    project = Project(folder, layer=Layer(shown), file=shown)
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at, lines = REFUSED_AT.search(str(error)), text.split("\n")
        line, column = (
            (int(at[1]), int(at[2])) if at and at[1] else (len(lines), len(lines[-1]) + 1)
        )
        message = REFUSED_AT.sub("", str(error))
        return replace(
            project,
            problems=(
                Problem(
                    f"no TOML: {message[:1].lower()}{message[1:]}",
                    shown,
                    line,
                    column,
                    None,
                    lines[line - 1],
                ),
            ),
        )
    except (OSError, ValueError, RecursionError) as error:
        return replace(project, problems=(Problem(f"cannot be read: {error}", shown),))
    project = replace(project, text=text)
    for place_in, name in enumerate(TABLE):
        if not isinstance(table, dict):
            return replace(
                project,
                problems=(Problem("expected a table", shown, path=dotted(TABLE[:place_in])),),
            )
        table = table.get(name, {})
    checked = validated(Table, table, ())
    if isinstance(checked, tuple):
        faults = tuple(map(_elsewhere, checked))
    else:
        faults = (
            tuple(name_faults(checked.defaults, (DEFAULTS,), codes))
            if checked.defaults is not None and codes is not None
            else ()
        )
    if faults or isinstance(checked, tuple):
        ordered = sorted(
            map(project.problem, faults),
            key=lambda problem: (problem.line or 0, problem.column or 0),
        )
        return replace(project, problems=tuple(ordered))
    layer = layer_of(checked.defaults, shown) if checked.defaults is not None else Layer(shown)
    places = {
        name: project.origin(
            DEFAULTS, *(("rules", name) if name in Rules.model_fields else (name,))
        )
        for name in layer.values
    }
    return replace(
        project,
        paths=tuple(checked.paths),
        layer=replace(layer, places=places),
        options=checked.options(),
    )


def _elsewhere(fault: Fault) -> Fault:
    """Return the fault with the right table for a misplaced key, and its message adapted from YAML
    to TOML."""
    message = AS_YAML.sub("", fault.message).replace("expected a mapping", "expected a table")
    if fault.key and len(fault.path) <= len((DEFAULTS, "key")):
        *table, name = map(str, fault.path)
        folded = name.replace("-", "_")
        in_defaults = table == [DEFAULTS]
        header = f"[tool.gradverify.{DEFAULTS}]"
        if folded in Rules.model_fields:
            message = (
                f"{name!r} stands in `rules`: {'' if in_defaults else header + ' '}rules = "
                f'{{{folded} = ["GV…"]}}'
            )
        elif folded in RunSettings.model_fields and not in_defaults:
            message = f"{name!r} is a setting of checks: it belongs in {header}"
        elif in_defaults and folded.replace("_", "-") in OPTIONS:
            message = f"{name!r} is an option of the run: it belongs in [tool.gradverify]"
        elif folded in Settings.model_fields and folded not in RunSettings.model_fields:
            message = f"{name!r} belongs to a spec (its `defaults`, or a check), not to a project"
    return replace(fault, message=message)
