"""Read specs from paths to cases, for all commands that do; notes on an empty selection; results
with names as on the command line."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.model.case import Case, Json
from gradverify.model.event import CheckFinished, Event
from gradverify.model.paths import resolved, shown_path
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate
from gradverify.model.result import CaseResult
from gradverify.report.numbers import counted

if TYPE_CHECKING:
    from gradverify.spec.project import Project
    from gradverify.spec.walk import LeftOut


def with_torch(cases: Sequence[Case]) -> None:
    """Raise ProblemsError if there are checks to run and torch is not installed."""
    if not all(case.skip is not None for case in cases):
        torch_is_here()


def torch_is_here() -> None:
    """Raise ProblemsError if torch is not installed."""
    if not _is_installed("torch"):
        raise ProblemsError(
            f"torch is not in this environment ({sys.prefix}): run gradverify with the "
            "Python that has torch and what is to be checked, as `PYTHON -m gradverify`"
        )


def _is_installed(package: str) -> bool:
    found = importlib.util.find_spec(package)
    return found is not None and found.has_location  # a plain folder of that name is no package


COMMAND_LINE = "command line"
IN_TEXT = re.compile(r"/[^\s:'\"]+\.py(?=:\w)")  # the file of a function, or of a line


def project_here() -> Project:
    """Return the project around the current folder; faults of its table are among its problems."""
    from gradverify.rules.catalogue import codes
    from gradverify.spec.project import project_of

    return project_of(Path.cwd(), codes())


@dataclass(frozen=True)
class Gathered:
    """The specs read. `cases`: those that the paths name; `written`: the number of all cases in the
    files. `origins`: id of each case of the files → setting → the place that gave it.

    `message`: what was searched, if there are no specs; `left_out`: files in the folders that are
    no specs, and folders not searched.
    """

    files: tuple[Path, ...]
    cases: tuple[Case, ...]
    written: int
    problems: tuple[Problem, ...]
    origins: Mapping[str, Mapping[str, str]]
    message: str | None = None
    left_out: tuple[LeftOut, ...] = ()


def gather(
    paths: Sequence[str],
    settings: Mapping[str, Json] | None = None,
    project: Project | None = None,
    origin: str = COMMAND_LINE,
    texts: Mapping[Path, str] | None = None,
) -> Gathered:
    """Read the specs that `paths` name. `settings`, given by `origin`, override those of the specs;
    `project`: if it was read already; `texts`: specs that are not on the disk."""
    from gradverify.functions.catalogue import BUILTINS
    from gradverify.rules.catalogue import codes
    from gradverify.spec.discover import discover, select
    from gradverify.spec.load import load
    from gradverify.spec.project import project_of
    from gradverify.spec.settings import Layer, origins
    from gradverify.spec.walk import folder_of

    @cache
    def of_folder(start: Path) -> Project:
        """Return the project whose defaults hold for the specs of a folder."""
        folder = folder_of(start)
        if folder in (None, found.project.folder):
            return found.project
        own = project_of(Path.cwd(), codes(), folder)
        return own if own.is_given else of_folder(folder.parent)

    found = discover(paths, Path.cwd(), project or project_here(), texts or ())
    here = texts or ()  # as if they were in the current folder
    projects = {
        file: found.project if file in here else of_folder(resolved(file).parent)
        for file in found.files
    }
    loaded = load(
        found.files,
        builtins={name: builtin.parameters for name, builtin in BUILTINS.items()},
        codes=codes(),
        project={file: own.layer for file, own in projects.items()},
        options=Layer(origin, settings or {}),
        required={name: builtin.required for name, builtin in BUILTINS.items()},
        texts=texts,
    )
    cases, missing = select(found, loaded.cases)
    problems = (
        *dict.fromkeys((*found.problems, *(p for own in projects.values() for p in own.problems))),
        *map(_as_option, loaded.problems),
        *(missing if not loaded.problems else ()),
    )
    return Gathered(
        found.files,
        cases,
        len(loaded.cases),
        problems,
        {id: origins(*layers) for id, layers in loaded.layers.items()},
        found.message,
        found.left_out,
    )


def _as_option(problem: Problem) -> Problem:
    """Return a problem of the command line's settings, `rules.ignore[1]`, as one of the option that
    gave it, `--ignore`."""
    if problem.file != COMMAND_LINE:
        return problem
    name = re.sub(r"\[\d+\]$", "", problem.path or "").rpartition(".")[2]
    return replace(problem, file=f"--{name.replace('_', '-')}", path=None)


def others(gathered: Gathered) -> tuple[str, ...]:
    """Return a line for each file that is no spec, and each folder that was not searched."""
    return tuple(f"left out: {each.path.as_posix()}: {each.why}" for each in gathered.left_out)


def sound(gathered: Gathered) -> Gathered:
    """Return `gathered`, or raise ProblemsError with all its problems."""
    if gathered.problems:
        raise ProblemsError(gathered.problems)
    return gathered


def nothing_selected(cases: Sequence[Case], keyword: str | None, tags: str | None) -> str | None:
    """Return a sentence on the options that no case matches; None without cases to select from, or
    without options."""
    given = " with ".join(
        [*([f"-k {keyword!r}"] if keyword else []), *([f"-m {tags!r}"] if tags else [])]
    )
    return f"{given} fits none of {counted(len(cases), 'check')}" if cases and given else None


def selected(
    gathered: Gathered, keyword: str | None, tags: str | None, say: Callable[[str], None]
) -> tuple[Case, ...]:
    """Return the cases that match; if there are none, `say` is called with the reason."""
    from gradverify.running.select import select

    cases = select(gathered.cases, keyword=keyword, tags=tags)
    message = gathered.message or (
        None if cases else nothing_selected(gathered.cases, keyword, tags)
    )
    if message:
        say(message)
    return cases


def worded(events: Iterable[Event], gate: Gate) -> Iterator[Event]:
    """Yield the events, with results worded for the command line."""
    for event in events:
        if isinstance(event, CheckFinished):
            result = named(event.result)
            if result.verdict == "skip" and result.missing in gate.require_device:
                result = replace(
                    result, reason=f"{result.reason}, required by --require-device {result.missing}"
                )
            elif result.verdict == "skip" and gate.fail_on_skip:
                result = replace(result, reason=f"{result.reason}; --fail-on-skip allows no skip")
            event = CheckFinished(result)
        yield event


def named(result: CaseResult) -> CaseResult:
    """Return the result with files named relative to the current folder."""
    function = replace(result.function, target=shown_target(result.function.target))
    findings = (
        replace(
            each,
            message=in_words(each.message) or "",
            hint=in_words(each.hint),
            frames=tuple(replace(frame, file=shown_path(frame.file)) for frame in each.frames),
        )
        for each in result.findings
    )
    return replace(
        result, function=function, findings=tuple(findings), reason=in_words(result.reason)
    )


def shown_target(target: str) -> str:
    place, _, attribute = target.rpartition(":")
    return f"{shown_path(place)}:{attribute}" if place.endswith(".py") else target


def in_words(text: str | None) -> str | None:
    return IN_TEXT.sub(lambda found: shown_path(found[0]), text) if text else text
