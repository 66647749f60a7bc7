"""The files that a run is to leave (`--report KIND:PATH`), refused before it, written during or after it; and what GitHub Actions reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from gradverify.cli import values
from gradverify.cli.output import ACTIONS, NotWritten, Output, begin, forget, is_set, is_special, keep, promise
from gradverify.model.event import Event
from gradverify.model.fault import described, fault_of, of_fault
from gradverify.model.paths import shown_path
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate, Report, exit_code, summarise
from gradverify.model.result import CaseResult
from gradverify.report.formats import KINDS, NAMES, STREAMED, Render, lines, meant_by, renderer
from gradverify.report.names import inert
from gradverify.rules.catalogue import rules
from gradverify.spec.walk import is_spec

SOURCES = (".py", ".yaml", ".yml", ".toml")     # what no report is called


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
    """The same with absolute paths, each of which can be written. Raises ProblemsError, also where two reports are to go to one file, or one in
    place of what is no report."""
    source = next((file.path for file in files if _is_source(file.path)), None)
    if source is not None:
        raise ProblemsError([Problem(f"--report: a report would take the place of {source}, and that is no report's name")])
    found = tuple(replace(file, path=promise(file.path)) for file in files)
    regular = [file.path.resolve() for file in found if file.path.is_file() or not file.path.exists()]      # any number may go to /dev/null
    twice = next((path for place, path in enumerate(regular) if path in regular[:place]), None)
    if twice is not None:
        raise ProblemsError([Problem(f"--report: two reports are to be written to {twice}")])
    return found


def saving(folder: str | None) -> str | None:
    """The folder of `--save-failures`, made and absolute. Raises ProblemsError where nothing can be written there."""
    return None if folder is None else str(promise(Path(folder) / "failure.npz", "--save-failures").parent)


def beside_specs(files: Iterable[ReportFile], specs: Iterable[Path]) -> None:
    """Raises ProblemsError where a report is to be written to one of the specs."""
    read = {spec.resolve() for spec in specs}
    taken = next((file.path for file in files if file.path.resolve() in read), None)
    if taken is not None:
        raise ProblemsError([Problem(f"--report: a report is to be written to {shown_path(str(taken))}, which is a spec of this run")])


def _is_source(path: Path) -> bool:
    return path.suffix.lower() in SOURCES


def begun(files: Iterable[ReportFile], report: Report) -> None:
    """In place of the reports of an earlier run: `report`, of a run that did not finish, which is what one that is killed leaves."""
    files = [file for file in files if not is_special(file.path)]
    for file in files:
        forget(file.path)
    written([file for file in files if file.kind not in STREAMED], report)


def outdated(arguments: Sequence[str]) -> None:
    """Removes the reports of an earlier run that a command line names which is refused: they say nothing of this one. What it also names
    otherwise, or what may be a spec, stays."""
    from gradverify.cli.gather import project_here

    named, others = list[str](), list[str]()
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        (named if option == "--report" else others).append(next(words, "") if word == "--report" else value if equals else word)
    if arguments[0] in ("check", "hook"):
        with contextlib.suppress(ProblemsError, OSError):      # also where the current folder is gone
            named += project_here().options.get("report", ())
    for text in named:
        with contextlib.suppress(values.Refused, OSError, ValueError):
            path = report_file("--report", text).path
            read = any(path.resolve() == Path(other).resolve() for other in others)
            if not read and not _is_source(path) and path.is_file() and not is_spec(path):
                forget(path)


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


class Lines:
    """`out`: None where stdout carries another format. The files are begun at once: of two runs that write to one path each has a file of its own."""

    def __init__(self, out: Output | None, paths: Sequence[Path], version: str) -> None:
        self.out, self.version = out, version
        self._line, self._last = lines("jsonl")
        self.failures: list[str] = []
        self._files: dict[Path, TextIO] = {}
        for path in paths:
            try:
                self._files[path] = begin(path)
            except OSError as error:
                self._failed(path, error)

    def told(self, events: Iterable[Event], gate: Gate) -> Iterator[Event]:
        """The events, unchanged."""
        for event in events:
            if self.out or self._files:
                self._write(self._line(event, gate, self.version))
            yield event

    def end(self, report: Report) -> list[str]:
        """The last line. A sentence for each file that could not be written."""
        if self.out or self._files:
            self._write(self._last(report))
        for path, file in self._files.items():
            try:
                file.close()
            except OSError as error:
                self._failed(path, error)
        return self.failures

    def _write(self, line: str) -> None:
        """Files first: whoever reads stdout may be gone. A file may be stdout as well."""
        line = inert(line)
        for path, file in list(self._files.items()):
            try:
                file.write(line)
                file.flush()
            except OSError as error:
                del self._files[path]
                self._failed(path, error)
        if self.out:
            self.out.write(line)

    def _failed(self, path: Path, error: OSError) -> None:
        self.failures.append(f"{path} could not be written: {error.strerror or error}")


SUMMARY = "GITHUB_STEP_SUMMARY"


def annotated(report: Report) -> str:
    """At the end of stdout: a fault of ours in drawing them costs them alone."""
    try:
        return renderer("github")(report)
    except Exception as error:
        return f"annotations are missing: gradverify itself failed to draw them ({described(error)})\n"


def summarised(report: Report, environ: Mapping[str, str]) -> str | None:
    """Appends the summary to the file that GitHub names, within what that may hold. A sentence where it could not be written."""
    if not (environ.get(SUMMARY) and is_set(environ, ACTIONS)):
        return None
    from gradverify.report.markdown import LIMIT

    path = Path(environ[SUMMARY])
    try:
        taken = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if taken else "") + renderer("markdown", limit=max(0, LIMIT - taken))(report))
    except OSError as error:
        return f"the job summary {path} could not be written: {error.strerror or error}"
    except Exception as error:
        return f"the job summary is missing: gradverify itself failed to draw it ({described(error)})"
    return None
