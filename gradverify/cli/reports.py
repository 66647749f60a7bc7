"""`--report KIND:PATH`: the files that a run is to leave, refused before it, written after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.cli import values
from gradverify.cli.output import NotWritten, forget, keep, promise
from gradverify.model.fault import described
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Report
from gradverify.report.formats import KINDS, NAMES, meant_by, renderer
from gradverify.rules.catalogue import rules


@dataclass(frozen=True, slots=True)
class ReportFile:
    kind: str
    path: Path


def report_file(option: str, text: str) -> ReportFile:
    """`KIND:PATH`; or a path whose ending can mean one kind only. Raises Refused."""
    kind, colon, path = text.partition(":")
    if kind in NAMES and path == "-":
        raise values.Refused(f"{option} {text!r}: a report is written to a file, and `-` is none; {kind}:/dev/stdout stands for stdout")
    if kind in NAMES and path:
        return ReportFile(kind, Path(path))
    told = None if colon else meant_by(Path(text))
    if told is None:
        known = f"one of {', '.join(NAMES)}" if len(NAMES) > 1 else NAMES[0]
        raise values.Refused(f"{option} {text!r}: must be KIND:PATH, where KIND is {known}{_hint(kind, colon)}")
    return ReportFile(told, Path(text))


def _hint(kind: str, colon: str) -> str:
    endings = ", ".join(suffix for each in KINDS for suffix in each.suffixes)
    return values.nearest(kind, NAMES) if colon else f"; without it PATH must end in one of {endings}" if endings else ""


def promised(files: Sequence[ReportFile]) -> tuple[ReportFile, ...]:
    """The same with absolute paths, each of which can be written. Raises ProblemsError, also where two reports are to go to one file."""
    found = tuple(replace(file, path=promise(file.path)) for file in files)
    regular = [file.path.resolve() for file in found if file.path.is_file() or not file.path.exists()]      # any number may go to /dev/null
    twice = next((path for place, path in enumerate(regular) if path in regular[:place]), None)
    if twice is not None:
        raise ProblemsError([Problem(f"--report: two reports are to be written to {twice}")])
    return found


def saving(folder: str | None) -> str | None:
    """The folder of `--save-failures`, made and absolute. Raises ProblemsError where nothing can be written there."""
    return None if folder is None else str(promise(Path(folder) / "failure.npz", "--save-failures").parent)


def forgotten(files: Iterable[ReportFile]) -> None:
    """Removes the reports of an earlier run."""
    for file in files:
        forget(file.path)


def written(files: Iterable[ReportFile], report: Report) -> list[str]:
    """Each file, whole; one that fails costs no other. A sentence for each that could not be written."""
    failures = []
    for file in files:
        try:
            keep(file.path, renderer(file.kind, rules)(report))
        except NotWritten as error:
            failures.append(str(error))
        except Exception as error:
            failures.append(f"{file.path} could not be written: gradverify itself failed to draw it ({described(error)})")
    return failures
