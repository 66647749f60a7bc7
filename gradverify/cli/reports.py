"""`--report KIND:PATH`: the files that a run is to leave, refused before it, written after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.cli import values
from gradverify.cli.output import NotWritten, forget, keep, promise
from gradverify.model.fault import described, fault_of, of_fault
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Report, exit_code, summarise
from gradverify.model.result import CaseResult
from gradverify.report.formats import KINDS, NAMES, Render, meant_by, renderer
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
            text, fault = _drawn(file.kind, report)
            keep(file.path, text)
            if fault is not None:
                failures.append(f"{file.path} lacks {fault}")
        except NotWritten as error:
            failures.append(str(error))
        except Exception as error:
            failures.append(f"{file.path} could not be written: gradverify itself failed to draw it ({described(error)})")
    return failures


def _drawn(kind: str, report: Report) -> tuple[str, str | None]:
    """The report's text. Where drawing it fails, every check that cannot be drawn alone is an error in it; they are named in words."""
    render = renderer(kind, rules)
    try:
        return render(report), None
    except Exception:
        checks = tuple(_drawable(check, render, report, kind) for check in report.checks)
        lost = [check.id for check, before in zip(checks, report.checks, strict=True) if check is not before]
        if not lost:
            raise
        whole = replace(report, checks=checks, summary=summarise(checks), exit_code=exit_code(checks), forgiven=None)
        return render(whole), f"{', '.join(lost)}: gradverify itself failed to draw it"


def _drawable(check: CaseResult, render: Render, report: Report, kind: str) -> CaseResult:
    try:
        render(replace(report, checks=(check,)))
    except Exception as error:
        return of_fault(check, fault_of(error, f"the {kind} report"))
    return check
