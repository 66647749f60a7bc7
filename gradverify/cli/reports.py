"""The report files of a run (`--report KIND:PATH`), validated before it and written after it; and
the output for GitHub Actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.cli import values
from gradverify.cli.output import ACTIONS, NotWritten, is_set, keep, promise
from gradverify.model.fault import described
from gradverify.model.paths import shown_path
from gradverify.model.problem import ProblemsError
from gradverify.model.report import Report
from gradverify.report.formats import KINDS, NAMES, meant_by, renderer
from gradverify.rules.catalogue import rules
from gradverify.spec.walk import is_spec

SOURCES = (".py", ".yaml", ".yml", ".toml")  # suffixes that no report has


@dataclass(frozen=True, slots=True)
class ReportFile:
    kind: str
    path: Path


def report_file(option: str, text: str) -> ReportFile:
    """Return the file of `KIND:PATH`, or of a path whose suffix means one kind only. Raises
    Refused."""
    kind, colon, path = text.partition(":")
    if kind in NAMES and path == "-":
        raise values.Refused(
            f"{option} {text!r}: a report is written to a file, and `-` is none; "
            f"{kind}:/dev/stdout stands for stdout"
        )
    if kind in NAMES and path:
        return ReportFile(kind, Path(path))
    by_ending = None if colon else meant_by(Path(text))
    if by_ending is None:
        endings = ", ".join(suffix for each in KINDS for suffix in each.suffixes)
        hint = (
            values.nearest(kind, NAMES)
            if colon
            else f"; without it PATH must end in one of {endings}"
        )
        raise values.Refused(
            f"{option} {text!r}: must be KIND:PATH, where KIND is one of {', '.join(NAMES)}{hint}"
        )
    return ReportFile(by_ending, Path(text))


def promised(files: Sequence[ReportFile], baseline: str | None = None) -> tuple[ReportFile, ...]:
    """Return the files with absolute paths, after checking that each can be written. Raises
    ProblemsError, also for a file that would replace a spec, a source file or the `baseline`."""
    for path in (file.path for file in files):
        if path.suffix.lower() in SOURCES:
            raise ProblemsError(
                f"--report: a report would take the place of {path}, and that is no report's name"
            )
        other = (
            "the baseline"
            if baseline and path.resolve() == Path(baseline).resolve()
            else "a spec"
            if path.is_file() and is_spec(path)
            else None
        )
        if other:
            raise ProblemsError(
                f"--report: a report is to be written to {shown_path(str(path))}, which is {other}"
            )
    return tuple(replace(file, path=promise(file.path)) for file in files)


def written(files: Iterable[ReportFile], report: Report) -> list[str]:
    """Write each file, even if another one fails. Returns a sentence for each that could not be
    written."""
    failures = []
    for file in files:
        try:
            keep(file.path, renderer(file.kind, rules)(report))
        except NotWritten as error:
            failures.append(str(error))
        except Exception as error:
            failures.append(
                f"{file.path} could not be written: gradverify itself failed to draw it "
                f"({described(error)})"
            )
    return failures


SUMMARY = "GITHUB_STEP_SUMMARY"


def annotated(report: Report) -> str:
    """Return GitHub's annotations, for the end of stdout; in their place a sentence if rendering
    them fails."""
    try:
        return renderer("github")(report)
    except Exception as error:
        return (
            f"annotations are missing: gradverify itself failed to draw them ({described(error)})\n"
        )


def summarised(report: Report, environ: Mapping[str, str]) -> str | None:
    """Append the summary to the file that GitHub names, within its size limit. Returns a sentence
    if it could not be written."""
    if not (environ.get(SUMMARY) and is_set(environ, ACTIONS)):
        return None
    from gradverify.report.markdown import LIMIT

    path = Path(environ[SUMMARY])
    try:
        taken = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(
                ("\n" if taken else "") + renderer("markdown", limit=max(0, LIMIT - taken))(report)
            )
    except OSError as error:
        return f"the job summary {path} could not be written: {error.strerror or error}"
    except Exception as error:
        return (
            f"the job summary is missing: gradverify itself failed to draw it ({described(error)})"
        )
    return None
