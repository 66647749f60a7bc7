"""`[tool.gradverify]` of the nearest pyproject.toml: where the specs are, a project's own defaults, and options that it gives once for all runs."""

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
from gradverify.spec.fault import Fault, Path, dotted
from gradverify.spec.schema import Auto, Device, Either, NotNegativeInteger, RunSettings, Strict, Text, key
from gradverify.spec.sense import name_faults
from gradverify.spec.settings import Layer, layer_of
from gradverify.spec.walk import PROJECT_FILE as FILE
from gradverify.spec.walk import folder_of
from gradverify.spec.wording import validated

TABLE: Path = ("tool", "gradverify")
DEFAULTS = "defaults"
AS_YAML = re.compile(r"in YAML 1\.2 this is text: |; for example \{.*\}$")
"""What is said of a spec and does not hold of TOML."""

AT_LEAST_1 = Annotated[int, Field(ge=1)]
JOBS = Annotated[int, Field(ge=1, lt=1025)]


class Table(Strict):
    """What `[tool.gradverify]` may hold: `paths`, `defaults`, and options of `check` under their names on the command line."""

    paths: list[Text] = key(
        "Spec files and folders, relative to the pyproject.toml; what `check` runs without paths.",
        ["specs"], default=[])
    defaults: RunSettings = key("Settings of every check that says nothing else.")
    jobs: Annotated[JOBS | Auto, Either("a whole number of processes, or auto")] = key("As `--jobs`.")
    maxfail: AT_LEAST_1 = key("As `--maxfail`.")
    undecided: Literal["warn", "fail"] = key("As `--undecided`.")
    fail_on_skip: bool = key("As `--fail-on-skip`.", alias="fail-on-skip")
    require_device: list[Device] = key("As `--require-device`.", ["cuda"], alias="require-device")
    baseline: Text = key("As `--baseline`; relative to the pyproject.toml.")
    report: list[Text] = key("As `--report`; files relative to the pyproject.toml.", ["json:gradients.json"])
    max_rows: Annotated[int, Field(ge=1, lt=WORST + 1)] = key("As `--max-rows`.", alias="max-rows")
    durations: NotNegativeInteger = key("As `--durations`.")

    def options(self) -> dict[str, Json]:
        """What it says beside `paths` and `defaults`, under the names of the file."""
        names = {name: info.alias or name for name, info in type(self).model_fields.items()}
        return {names[name]: value for name, value in self.said().items() if name not in ("paths", DEFAULTS)}


OPTIONS = tuple(info.alias or name for name, info in Table.model_fields.items() if name not in ("paths", DEFAULTS))


@dataclass(frozen=True, slots=True)
class Project:
    """`folder` holds the pyproject.toml; None where there is none. `file`: as it is shown.

    `options`: those of `check` that it gives, by their names without dashes before them.
    """

    folder: FilePath | None = None
    paths: tuple[str, ...] = ()
    layer: Layer = field(default_factory=lambda: Layer(FILE))
    problems: tuple[Problem, ...] = ()
    options: Mapping[str, Json] = field(default_factory=dict)
    file: str = FILE

    def problem(self, fault: Fault) -> Problem:
        """A fault inside the table."""
        return Problem(fault.message, self.file, path=dotted((*TABLE, *fault.path)))


def project_of(cwd: FilePath, codes: Collection[str] | None = None) -> Project:
    """The project around `cwd`: the nearest pyproject.toml at or above it, whether or not it speaks of gradverify. `codes`: the rules there are."""
    folder = folder_of(cwd)
    if folder is None:
        return Project()
    shown = FilePath(os.path.relpath(folder / FILE, cwd)).as_posix()
    project = Project(folder, layer=Layer(shown), file=shown)
    try:
        table: Any = tomllib.loads((folder / FILE).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        return replace(project, problems=(Problem(f"no TOML: {str(error)[:1].lower()}{str(error)[1:]}", shown),))
    except (OSError, ValueError, RecursionError) as error:
        return replace(project, problems=(Problem(f"cannot be read: {error}", shown),))
    for place_in, name in enumerate(TABLE):
        if not isinstance(table, dict):
            return replace(project, problems=(Problem("expected a table", shown, path=dotted(TABLE[:place_in])),))
        table = table.get(name, {})
    checked = validated(Table, table, ())
    if isinstance(checked, tuple):
        faults = tuple(map(_in_toml, checked))
    else:
        faults = tuple(name_faults(checked.defaults, (DEFAULTS,), codes)) if checked.defaults is not None and codes is not None else ()
    if faults or isinstance(checked, tuple):
        return replace(project, problems=tuple(map(project.problem, faults)))
    layer = layer_of(checked.defaults, shown) if checked.defaults is not None else Layer(shown)
    return replace(project, paths=tuple(checked.paths), layer=layer, options=checked.options())


def _in_toml(fault: Fault) -> Fault:
    """What is said of YAML is said of TOML, or left out."""
    return replace(fault, message=AS_YAML.sub("", fault.message).replace("expected a mapping", "expected a table"))
