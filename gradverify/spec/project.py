"""`[tool.gradverify]` of the nearest pyproject.toml: where the specs are, a project's own defaults, and options that it gives once for all runs."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field

from gradverify.model.case import Json
from gradverify.model.problem import Problem
from gradverify.model.result import WORST
from gradverify.spec.check_sense import code_faults
from gradverify.spec.fault import Fault, Path, dotted
from gradverify.spec.schema import UNSAID, Auto, Device, Either, NotNegativeInteger, Positive, RunSettings, Settings, Strict, Text
from gradverify.spec.settings import Layer, layer_of
from gradverify.spec.toml_lines import place_of, refusal
from gradverify.spec.walk import PROJECT_FILE as FILE
from gradverify.spec.walk import folder_of
from gradverify.spec.wording import validated

TABLE: Path = ("tool", "gradverify")
DEFAULTS = "defaults"
OF_RULES = ("select", "ignore")
AS_YAML = re.compile(r"in YAML 1\.2 this is text: |; for example \{.*\}$")
"""What is said of a spec and does not hold of TOML."""

AT_LEAST_1 = Annotated[int, Field(ge=1)]


class Table(Strict):
    """What `[tool.gradverify]` may hold: `paths`, `defaults`, and options of `check` under their names on the command line."""

    paths: list[Text] = Field([], description="Spec files and folders, relative to the pyproject.toml; what `check` runs without paths.",
                              examples=[["specs"]])
    defaults: RunSettings = Field(UNSAID, description="Settings of every check that says nothing else.")
    jobs: Annotated[AT_LEAST_1 | Auto, Either("a whole number of processes, or auto")] = Field(UNSAID, description="As `--jobs`.")
    import_timeout: Positive = Field(UNSAID, alias="import-timeout", description="As `--import-timeout`.")
    memory: Text = Field(UNSAID, description="As `--memory`.")
    maxfail: AT_LEAST_1 = Field(UNSAID, description="As `--maxfail`.")
    undecided: Literal["warn", "fail"] = Field(UNSAID, description="As `--undecided`.")
    fail_on_skip: bool = Field(UNSAID, alias="fail-on-skip", description="As `--fail-on-skip`.")
    require_device: list[Device] = Field(UNSAID, alias="require-device", description="As `--require-device`.", examples=[["cuda"]])
    baseline: Text = Field(UNSAID, description="As `--baseline`; relative to the pyproject.toml.")
    report: list[Text] = Field(UNSAID, description="As `--report`; files relative to the pyproject.toml.", examples=[["json:gradients.json"]])
    max_rows: Annotated[int, Field(ge=1, lt=WORST + 1)] = Field(UNSAID, alias="max-rows", description="As `--max-rows`.")
    durations: NotNegativeInteger = Field(UNSAID, description="As `--durations`.")

    def options(self) -> dict[str, Json]:
        """What it says beside `paths` and `defaults`, under the names of the file."""
        names = {name: info.alias or name for name, info in type(self).model_fields.items()}
        return {names[name]: value for name, value in self.said().items() if name not in ("paths", DEFAULTS)}


OPTIONS = tuple(info.alias or name for name, info in Table.model_fields.items() if name not in ("paths", DEFAULTS))


@dataclass(frozen=True, slots=True)
class Project:
    """`folder` holds the pyproject.toml; None where there is none. `file`, `text`: as it is shown, and as it is written.

    `options`: those of `check` that it gives, by their names without dashes before them.
    """

    folder: FilePath | None = None
    paths: tuple[str, ...] = ()
    layer: Layer = field(default_factory=lambda: Layer(FILE))
    problems: tuple[Problem, ...] = ()
    options: Mapping[str, Json] = field(default_factory=dict)
    file: str = FILE
    text: str = ""

    def origin(self, *names: str) -> str:
        """The place of a key of the table: `pyproject.toml:12`."""
        place = place_of(self.text, (*TABLE, *names))
        return f"{self.file}:{place.line}" if place else self.file

    def problem(self, fault: Fault) -> Problem:
        """A fault inside the table, with its line where the key is found."""
        full = (*TABLE, *fault.path)
        place = place_of(self.text, full)
        if place is None:
            return Problem(fault.message, self.file, path=dotted(full))
        return Problem(fault.message, self.file, place.line, place.column, dotted(full), place.text)


def project_of(cwd: FilePath, codes: Collection[str] | None = None) -> Project:
    """The project around `cwd`: the nearest pyproject.toml at or above it, whether or not it speaks of gradverify. `codes`: the rules there are."""
    folder = folder_of(cwd)
    return Project() if folder is None else _read(folder, _shown(folder / FILE, cwd), codes)


def _shown(file: FilePath, cwd: FilePath) -> str:
    return FilePath(os.path.relpath(file, cwd)).as_posix()


def _read(folder: FilePath, shown: str, codes: Collection[str] | None) -> Project:
    project = Project(folder, layer=Layer(shown), file=shown)
    text = ""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, place = refusal(error, text)
        where = (place.line, place.column, None, place.text) if place else ()
        return replace(project, problems=(Problem(f"no TOML: {message}", shown, *where),))
    except (OSError, ValueError, RecursionError) as error:
        return replace(project, problems=(Problem(f"cannot be read: {error}", shown),))
    project = replace(project, text=text)
    for place_in, name in enumerate(TABLE):
        if not isinstance(table, dict):
            return replace(project, problems=(Problem("expected a table", shown, path=dotted(TABLE[:place_in])),))
        table = table.get(name, {})
    return _judged(table, project, codes)


def _judged(table: Json, project: Project, codes: Collection[str] | None) -> Project:
    checked = validated(Table, table, ())
    faults = tuple(_elsewhere(fault) for fault in checked) if isinstance(checked, tuple) else ()
    defaults = table.get(DEFAULTS, {}) if isinstance(table, dict) else {}
    if isinstance(defaults, dict) and not any(fault.path[:1] == (DEFAULTS,) for fault in faults):
        faults += () if codes is None else tuple(code_faults(defaults, (DEFAULTS,), codes))
    if faults or not isinstance(checked, Table):
        return replace(project, problems=tuple(_in_order(map(project.problem, faults))))
    layer = layer_of(checked.defaults, project.file) if checked.defaults is not None else Layer(project.file)
    places = {name: project.origin(DEFAULTS, *(("rules", name) if name in OF_RULES else (name,))) for name in layer.said}
    return replace(project, paths=tuple(checked.paths), layer=replace(layer, places=places), options=checked.options())


def _in_order(problems: Iterable[Problem]) -> Iterator[Problem]:
    yield from sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _elsewhere(fault: Fault) -> Fault:
    """A key that stands in the wrong table is told the right one; what is said of YAML is said of TOML, or left out."""
    message = AS_YAML.sub("", fault.message).replace("expected a mapping", "expected a table")
    if fault.key and len(fault.path) <= len((DEFAULTS, "key")):
        *table, name = fault.path
        message = _right_table(str(name).replace("-", "_"), str(name), table == [DEFAULTS]) or message
    return replace(fault, message=message)


def _right_table(folded: str, name: str, in_defaults: bool) -> str | None:
    own, header = ".".join(map(str, TABLE)), f"[{'.'.join(map(str, TABLE))}.{DEFAULTS}]"
    if folded in OF_RULES:
        return f"{name!r} stands in `rules`: {'' if in_defaults else header + ' '}rules = {{{folded} = [\"GV…\"]}}"
    if folded in RunSettings.model_fields and not in_defaults:
        return f"{name!r} is a setting of checks: it belongs in {header}"
    if in_defaults and folded.replace("_", "-") in OPTIONS:
        return f"{name!r} is an option of the run: it belongs in [{own}]"
    if folded in Settings.model_fields and folded not in RunSettings.model_fields:
        return f"{name!r} belongs to a spec (its `defaults`, or a check), not to a project"
    return None
