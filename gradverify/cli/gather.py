"""Specs read from paths to cases, for every command that reads them; what to say of an empty selection; results in words of the command line."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli import values
from gradverify.cli.reports import report_file
from gradverify.model.case import Case, Json
from gradverify.model.event import CheckFinished, Event
from gradverify.model.paths import shown_path
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate
from gradverify.model.result import CaseResult, Finding
from gradverify.report.numbers import counted

if TYPE_CHECKING:
    from gradverify.spec.project import Project
    from gradverify.spec.settings import Layer
    from gradverify.spec.walk import LeftOut


def with_torch(cases: Sequence[Case]) -> None:
    """Raises ProblemsError with a sentence where there are checks to run, and no torch to run them with."""
    if not all(case.skip is not None for case in cases):
        torch_is_here()


def torch_is_here() -> None:
    """Raises ProblemsError with a sentence where torch is not installed."""
    if not _is_installed("torch"):
        raise ProblemsError([Problem(f"torch is not in this environment ({sys.prefix}): run gradverify with the Python that has torch and what is to "
                                     "be checked, as `PYTHON -m gradverify`")])


def _is_installed(package: str) -> bool:
    found = importlib.util.find_spec(package)
    return found is not None and found.has_location       # a mere folder of that name is no package


READERS: Mapping[str, values.Reader] = {"jobs": values.jobs, "memory": values.size, "report": report_file}
"""Options whose words the types of `[tool.gradverify]` do not tell whole."""


def project_here() -> Project:
    """The project around the current folder, everything that is wrong with its table among its problems."""
    from gradverify.rules.catalogue import codes
    from gradverify.spec.project import project_of

    project = project_of(Path.cwd(), codes())
    refused = tuple(problem for name, value in project.options.items() for problem in _refused(name, value, project))
    return replace(project, problems=(*project.problems, *refused), options={}) if refused else project


def _refused(name: str, value: Json, project: Project) -> Iterator[Problem]:
    from gradverify.spec.fault import Fault

    if name not in READERS:
        return
    for text in value if isinstance(value, list) else [value]:
        try:
            READERS[name](name, str(text))
        except values.Refused as refusal:
            yield project.problem(Fault((name,), str(refusal).removeprefix(f"{name} ")))


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


def gather(paths: Sequence[str], settings: Mapping[str, Json] | None = None, project: Project | None = None,
           origin: str = "command line") -> Gathered:
    """`settings` are over those of the specs, named by `origin`; `project`, where it was read already."""
    from gradverify.functions.catalogue import BUILTINS
    from gradverify.rules.catalogue import codes
    from gradverify.spec.discover import discover, select
    from gradverify.spec.load import load
    from gradverify.spec.settings import Layer, origins

    found = discover(paths, Path.cwd(), project or project_here())
    loaded = load(found.files, builtins={name: builtin.parameters for name, builtin in BUILTINS.items()}, codes=codes(), project=found.project.layer,
                  options=Layer(origin, settings or {}), required={name: builtin.required for name, builtin in BUILTINS.items()})
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


def nothing_selected(cases: Sequence[Case], keyword: str | None, tags: str | None) -> str | None:
    """A sentence about the first option that no case fits by itself; None where there was nothing to select from, or nothing was asked."""
    from gradverify.running.select import select

    if not cases or not (keyword or tags):
        return None
    count = counted(len(cases), "check")
    if keyword and not select(cases, keyword=keyword):
        words = [word for case in cases for word in (case.check, *re.findall(r"\w+", case.id))]
        return f"-k {keyword!r} fits none of {count}{_hint(keyword, words)}"
    if tags and not select(cases, tags=tags):
        known = [tag for case in cases for tag in case.tags]
        return f"-m {tags!r} fits none of {count}{_hint(tags, known)}"
    return f"-k {keyword!r} and -m {tags!r} together fit none of {count}"


def _hint(expression: str, known: Sequence[str]) -> str:
    """The known word that is nearest to one of the expression that occurs nowhere."""
    from gradverify.spec.fault import nearest

    every = "\n".join(known).lower()
    words = [word for word in re.findall(r"[^\s()]+", expression) if word.lower() not in every]
    near = next(filter(None, (nearest(word, tuple(dict.fromkeys(known))) for word in words)), None)
    return f"; did you mean {near!r}?" if near else ""


def selected(gathered: Gathered, keyword: str | None, tags: str | None, say: Callable[[str], None]) -> tuple[Case, ...]:
    """The cases that fit; where there are none, why is said."""
    from gradverify.running.select import select

    cases = select(gathered.cases, keyword=keyword, tags=tags)
    message = gathered.message or (None if cases else nothing_selected(gathered.cases, keyword, tags))
    if message:
        say(message)
    return cases


def worded(events: Iterable[Event], gate: Gate, names: Mapping[str, str]) -> Iterator[Event]:
    """The events; what results say is reworded. `names`: functions in files, as they are looked up (absolute paths) → as a person names them."""
    for event in events:
        yield CheckFinished(_gated(named(event.result, names), gate)) if isinstance(event, CheckFinished) else event


def _gated(result: CaseResult, gate: Gate) -> CaseResult:
    if result.verdict != "skip":
        return result
    if result.missing in gate.require_device:
        return replace(result, reason=f"{result.reason}, required by --require-device {result.missing}")
    return replace(result, reason=f"{result.reason}; --fail-on-skip allows no skip") if gate.fail_on_skip else result


def named(result: CaseResult, names: Mapping[str, str]) -> CaseResult:
    function = replace(result.function, target=names.get(result.function.target, result.function.target))
    findings = tuple(_reworded(finding, names) for finding in result.findings)
    return replace(result, function=function, findings=findings, reason=in_words(result.reason, names))


def _reworded(finding: Finding, names: Mapping[str, str]) -> Finding:
    frames = tuple(replace(frame, file=shown_path(frame.file)) for frame in finding.frames)
    return replace(finding, message=in_words(finding.message, names) or "", hint=in_words(finding.hint, names), frames=frames)


def in_words(text: str | None, names: Mapping[str, str]) -> str | None:
    """Whole names only: `act.py:Swish` is not the beginning of `act.py:Swishes`."""
    for target, name in names.items():
        text = re.sub(rf"{re.escape(target)}(?!\w)", lambda _, name=name: name, text) if text else text  # type: ignore[misc]
    return text
