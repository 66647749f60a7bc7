"""`gradverify coverage`: list the autograd Functions below a folder that no check covers. Reads
source and specs without importing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.options import GATE, PERCENT, Option, Options, command, settle
from gradverify.cli.output import Output
from gradverify.model.case import Case
from gradverify.model.codec import as_text
from gradverify.model.paths import resolved
from gradverify.model.problem import Problem, ProblemsError
from gradverify.report.listing import CoveredFunction, coverage_report

if TYPE_CHECKING:
    from gradverify.source.functions import Function, Key, Reach, Reached
    from gradverify.source.modules import Library


COVERED = Option(
    "--fail-under",
    "PERCENT",
    "Exit with 1 if a smaller share of the Functions has a check.",
    GATE,
    type=float,
    default=0.0,
    more=PERCENT,
)


@command("source", "specs", "fail_under", "format", "width", "color", fail_under=COVERED)
def coverage_command(options: Options, out: Output) -> int:
    """List the autograd Functions that no check covers. Imports nothing."""
    shown = settle(options, out).look
    from gradverify import __version__
    from gradverify.cli.gather import gather, sound
    from gradverify.report.listing import coverage_text
    from gradverify.source.modules import shown as named

    library, functions = found_in(options.source)
    unreadable = [
        (named(file, Path.cwd()), why) for file, why in sorted(library.unreadable.items())
    ]
    if unreadable and not functions:
        raise ProblemsError(unread(unreadable))
    gathered = sound(gather(options.specs or ()))  # no specs are no checks
    if gathered.message:
        out.say(gathered.message)
    covered = covered_by(gathered.cases, library, functions)
    for problem in unread(unreadable):
        out.say(str(problem))
    report = coverage_report(
        covered, unreadable, version=__version__, fail_under=options.fail_under
    )
    out.write(as_text(report) if options.format == "json" else coverage_text(report, shown))
    return report.exit_code


def covered_by(
    cases: Iterable[Case], library: Library, functions: Sequence[Function]
) -> list[CoveredFunction]:
    """Return each Function with the checks that cover it."""
    from gradverify.source.functions import Reach, key_of

    reach = Reach(library, {key_of(function): function for function in functions})
    reached = [(case, _of(case, reach)) for case in cases if case.skip is None]
    return [_function(function, key_of(function), reached) for function in functions]


def unread(files: Iterable[tuple[str, str]]) -> list[Problem]:
    """Return a problem for each (file, reason) of files that could not be read."""
    return [Problem(f"was not read: {why}", file) for file, why in files]


def found_in(sources: Sequence[str]) -> tuple[Library, list[Function]]:
    """Return the Functions of files, folders and packages, each once. Raises ProblemsError for a
    source that does not exist."""
    from gradverify.source.functions import functions
    from gradverify.source.modules import Library, place_of, python_files

    places = {text: place_of(text, searched()) for text in sources}
    missing = [
        Problem("no such file, folder or package with Python source", text)
        for text, place in places.items()
        if place is None
    ]
    if missing:
        raise ProblemsError(missing)
    files = list(
        dict.fromkeys(
            resolved(file)
            for place in places.values()
            if place is not None
            for file in python_files(place)
        )
    )
    library = Library(tuple(Path(folder) for folder in searched()))
    return library, list(functions(library, files))


def searched() -> list[str]:
    """Return the folders in which modules are looked up: the current folder, then those of
    Python."""
    from gradverify.source.modules import python_path

    return list(dict.fromkeys([str(Path.cwd()), *(entry for entry in python_path() if entry)]))


def _of(case: Case, reach: Reach) -> Reached:
    from gradverify.functions.catalogue import BUILTINS

    builtin = BUILTINS.get(case.target)
    folders = [*case.search.path, case.search.folder, *searched()]
    return reach.of(
        f"{builtin.module}:{builtin.attribute}" if builtin else case.target,
        [Path(folder) for folder in folders],
    )


def _function(
    function: Function, key: Key, reached: Sequence[tuple[Case, Reached]]
) -> CoveredFunction:
    from gradverify.source.modules import shown

    direct = [case for case, found in reached if found.direct == key]
    through = [case for case, found in reached if key in found.through]
    note = (
        None
        if function.inside is None
        else (
            f"no spec can name it, it is defined inside {function.inside}: check a callable that "
            "uses it"
        )
    )
    return CoveredFunction(
        function.full_name,
        function.kind,
        shown(function.file, Path.cwd()),
        function.line,
        function.backward,
        _ids(direct),
        _ids(through),
        note,
    )


def _ids(cases: Sequence[Case]) -> tuple[str, ...]:
    """Return the ids of checks without their matrix part, each once."""
    return tuple(dict.fromkeys(f"{case.spec.path}::{case.check}" for case in cases))
