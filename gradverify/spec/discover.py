"""From the paths that the user gives to spec files: search folders, split `PATH::NAME`, and find
the default places if no path is given."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradverify.model.case import Case
from gradverify.model.paths import resolved
from gradverify.model.problem import Problem
from gradverify.spec.fault import allowed
from gradverify.spec.names import neighbour
from gradverify.spec.project import Project, project_of
from gradverify.spec.walk import OWN_SUFFIXES, SPEC_FOLDER, LeftOut, own_specs, specs_below

PYTHON = re.compile(r"\.py(:\w+)?$")


@dataclass(frozen=True, slots=True)
class Found:
    """The spec files found. `files`: relative to the current folder if they lie below it, in the
    order given, each once. `names`: file → the names given after `::`, without files given as a
    whole. `message`: what was searched, if nothing was found; `left_out`: files that are no specs,
    and folders that were not searched, with paths as shown."""

    files: tuple[Path, ...] = ()
    names: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    project: Project = field(default_factory=Project)
    message: str | None = None
    left_out: tuple[LeftOut, ...] = ()


def discover(
    paths: Sequence[str],
    cwd: Path,
    project: Project | None = None,
    texts: Collection[Path] = (),
) -> Found:
    """Return the spec files that `paths` name; without paths those of the project, of `specs/`, or
    every `*.gradverify.yaml` below `cwd`.

    `project`: the one around `cwd`, if it was read already; `texts`: specs that are not on the
    disk.
    """
    project = project_of(cwd) if project is None else project
    if not paths and project.folder is not None:
        paths = [os.path.relpath(project.folder / path, cwd) for path in project.paths]
    if not paths and not (cwd / SPEC_FOLDER).is_dir():
        own = tuple(_shown(file, cwd) for file in own_specs(cwd))
        message = (
            None
            if own
            else (
                f"no specs: neither `paths` in [tool.gradverify], nor {SPEC_FOLDER}/, nor "
                f"*{OWN_SUFFIXES[0]} below {cwd}; `gradverify init` writes a first one"
            )
        )
        return Found(own, {}, project.problems, project, message)

    files: dict[Path, Path] = {}
    names: dict[Path, list[str]] = {}
    whole: set[Path] = set()
    problems, empty = list(project.problems), []
    left_out: list[LeftOut] = []
    for text in paths or [SPEC_FOLDER]:
        place, _, name = text.partition("::")
        found = [Path(place)] if Path(place) in texts else _members(place, cwd, left_out)
        if isinstance(found, Problem):
            problems.append(found)
            continue
        empty += [] if found or (cwd / place).is_file() else [place]
        for file in [files.setdefault(resolved(cwd / file), file) for file in found]:
            if name:
                names.setdefault(file, []).append(name)
            else:
                whole.add(file)
    message = (
        f"no specs (YAML files with the key `gradverify`) below {', '.join(empty)}"
        if empty
        else None
    )
    others = {resolved(cwd / each.path): each for each in left_out}
    return Found(
        tuple(files.values()),
        {file: tuple(wanted) for file, wanted in names.items() if file not in whole},
        tuple(problems),
        project,
        message,
        tuple(others[path] for path in others if path not in files),
    )


def _members(place: str, cwd: Path, left_out: list[LeftOut]) -> list[Path] | Problem:
    """Return the file, or the specs of the folder, that `place` names, with paths as shown."""
    path = cwd / place
    try:
        if PYTHON.search(place) and not path.is_dir():
            return Problem(
                "Python is no spec: name it in a YAML file, as `function: "
                f"{place}{'' if '.py:' in place else ':Name'}`, or check a function in it, as "
                f"`gradverify check {place}{'' if '.py:' in place else ':Name'}`",
                place,
            )
        if path.is_dir():
            others: list[LeftOut] = []
            found = [_shown(file, cwd, place) for file in specs_below(path, others)]
            left_out += [replace(each, path=_shown(each.path, cwd, place)) for each in others]
            return found
        if path.exists():
            return [_shown(path, cwd, place)]
    except (OSError, ValueError) as error:
        return Problem(f"cannot be read: {getattr(error, 'strerror', None) or error}", place)
    return Problem(f"no such file or folder{neighbour(path)}", place)


def _shown(file: Path, cwd: Path, given: str = "") -> Path:
    """Return the file relative to `cwd`; absolute if it was given so and lies elsewhere."""
    normal = Path(os.path.normpath(file))
    if normal.is_relative_to(os.path.normpath(cwd)) or not Path(given).is_absolute():
        return Path(os.path.relpath(normal, cwd))
    return normal


def select(found: Found, cases: Iterable[Case]) -> tuple[tuple[Case, ...], tuple[Problem, ...]]:
    """Return the cases selected by `PATH::NAME` (all cases of a file given as a whole), and a
    problem for every name that no case has."""
    cases, problems = tuple(cases), list[Problem]()
    for file, names in found.names.items():
        known = tuple(
            dict.fromkeys(
                name
                for case in cases
                if Path(case.spec.path) == file
                for name in (case.name, case.check)
            )
        )
        problems += [
            Problem(f"no check {name!r}; {allowed(name, known, 'checks')}", file.as_posix())
            for name in names
            if name not in known
        ]
    requested = ((case, found.names.get(Path(case.spec.path))) for case in cases)
    return tuple(
        case
        for case, names in requested
        if names is None or case.name in names or case.check in names
    ), tuple(problems)
