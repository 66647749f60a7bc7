"""Options that `[tool.gradverify]` gives once for all runs, where the command line says nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradverify.cli import values
from gradverify.cli.asked import Asked
from gradverify.cli.reports import report_file
from gradverify.model.case import Json
from gradverify.model.problem import Problem

if TYPE_CHECKING:
    from gradverify.spec.project import Project

OF_WORKERS = ("jobs", "import_timeout", "memory")
"""What is for worker processes alone; nobody is to take it out of a project in order to debug with `--no-isolate`."""

AS_TEXT = (*OF_WORKERS, "durations")
"""What the command line is read from text."""

READERS: Mapping[str, Callable[[str, str], Any]] = {"jobs": values.jobs, "memory": values.size, "report": report_file}
"""Those whose words the types of `[tool.gradverify]` do not tell whole."""


def project_here() -> Project:
    """The project around the current folder, everything that is wrong with its table among its problems."""
    from gradverify.rules.catalogue import codes
    from gradverify.spec.project import project_of

    project = project_of(Path.cwd(), codes())
    refused = tuple(problem for name, value in project.options.items() for problem in _refused(name, value, project))
    return replace(project, problems=(*project.problems, *refused), options={}) if refused else project


def configured(asked: Asked, project: Project) -> Asked:
    """Fill options that the command line leaves open from the project."""
    given = {field_of(name): value for name, value in project.options.items()}
    return replace(asked, **{name: _as_typed(name, value, project) for name, value in given.items() if _is_open(asked, name)})


def field_of(name: str) -> str:
    """The field of `Asked` that an option of `[tool.gradverify]` fills."""
    return name.replace("-", "_")


def _is_open(asked: Asked, name: str) -> bool:
    """Return whether the command line leaves an option open; so does an empty list of a repeatable one."""
    return getattr(asked, name) in (None, (), []) and not (asked.no_isolate and name in OF_WORKERS)


def _as_typed(name: str, value: Json, project: Project) -> Json:
    """As it would be typed in: numbers as text where the option is read from text, files from the project's folder."""
    if name == "report":
        return [_from_folder(text, project) for text in value]
    if name == "baseline":
        return str((project.folder or Path()) / value)
    return str(value) if name in AS_TEXT else value


def _from_folder(report: str, project: Project) -> str:
    """`KIND:PATH` with a path that counts from the pyproject.toml."""
    file = report_file("report", report)
    return f"{file.kind}:{(project.folder or Path()) / file.path}"


def _refused(name: str, value: Json, project: Project) -> Iterable[Problem]:
    from gradverify.spec.fault import Fault

    if name not in READERS:
        return
    for text in value if isinstance(value, list) else [value]:
        try:
            READERS[name](name, str(text))
        except values.Refused as refusal:
            yield project.problem(Fault((name,), str(refusal).removeprefix(f"{name} ")))
