"""Specs read from paths to cases, for every command that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.configured import project_here
from gradverify.model.case import Case, Json
from gradverify.model.problem import Problem, ProblemsError
from gradverify.report.numbers import counted

if TYPE_CHECKING:
    from gradverify.spec.project import Project
    from gradverify.spec.settings import Layer
    from gradverify.spec.walk import LeftOut


@dataclass(frozen=True)
class Gathered:
    """`cases` are those that the paths name; `written` counts all of the files. `origins`: case id → setting → the place that named it.
    `names`: functions in files, as they are looked up → as a person names them. `layers`: case id →
    where its settings come from, the last one counts; `ids`: of all cases of the files.

    `message` says what was searched, where there are no specs; `left_out`: what the folders hold beside specs.
    """

    files: tuple[Path, ...]
    cases: tuple[Case, ...]
    written: int
    problems: tuple[Problem, ...]
    origins: Mapping[str, Mapping[str, str]]
    names: Mapping[str, str]
    layers: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)
    ids: frozenset[str] = frozenset()
    message: str | None = None
    left_out: tuple[LeftOut, ...] = ()


def gather(paths: Sequence[str], said: Mapping[str, Json] | None = None, project: Project | None = None, origin: str = "command line") -> Gathered:
    """`said` are the settings over those of the specs, named by `origin`; `project`, where it was read already."""
    from gradverify.functions.catalogue import BUILTINS
    from gradverify.rules.catalogue import codes
    from gradverify.spec.discover import discover, select
    from gradverify.spec.load import load
    from gradverify.spec.settings import Layer, origins

    found = discover(paths, Path.cwd(), project or project_here())
    loaded = load(found.files, builtins={name: builtin.parameters for name, builtin in BUILTINS.items()}, codes=codes(), project=found.project.layer,
                  options=Layer(origin, said or {}), required={name: builtin.required for name, builtin in BUILTINS.items()})
    cases, missing = select(found, loaded.cases)
    problems = (*found.problems, *loaded.problems, *(missing if not loaded.problems else ()))
    named = {name: origins(*layers) for name, layers in loaded.layers.items()}
    return Gathered(found.files, cases, len(loaded.cases), problems, named, loaded.names, loaded.layers,
                    frozenset(case.id for case in loaded.cases), found.message, found.left_out)


def spec_problems(gathered: Gathered) -> str | None:
    """How many problems there are in how many specs; None where none of them has a line in a spec."""
    specs = {problem.file for problem in gathered.problems} & {file.as_posix() for file in gathered.files}
    if not any(problem.file in specs and problem.line is not None for problem in gathered.problems):
        return None
    elsewhere = any(problem.file not in specs for problem in gathered.problems)
    return counted(len(gathered.problems), "problem") + ("" if elsewhere else f" in {counted(len(specs), 'spec')}")


def others(gathered: Gathered) -> tuple[str, ...]:
    """A line for each file and folder that is no spec, or was not searched."""
    return tuple(f"left out: {each.path.as_posix()}: {each.why}" for each in gathered.left_out)


def sound(gathered: Gathered) -> Gathered:
    """Return the cases, or raise ProblemsError with every problem."""
    if gathered.problems:
        raise ProblemsError(gathered.problems)
    return gathered
