"""The report as one HTML page: verdicts first, then each failure with its numbers and pictures, then how it was run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import starmap

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gradverify.model.report import Report, told
from gradverify.model.result import CaseResult, Comparison, Finding, Frame
from gradverify.report import numbers
from gradverify.report.html.heat import Heat, heat
from gradverify.report.html.steps import Plot, plot
from gradverify.report.look import Look
from gradverify.report.names import clean, device_of, folded, one_line, output, pair_of, title_of
from gradverify.report.reproduce import again
from gradverify.report.terminal import status
from gradverify.report.terminal.line import judged_comparisons, phrase
from gradverify.report.terminal.panel import also, comparisons_of, missing
from gradverify.report.terminal.table import cells_of, headers_of, more_of
from gradverify.report.terminal.view import SAID

LOOK = Look()
ROWS = 10           # of a table of elements
WIDE = 200          # columns that a phrase may take: it wraps
AROUND = 6          # lines of source above and below what is marked, where the source is long
WHOLE = 40          # lines of source that are shown whole


@dataclass(frozen=True, slots=True)
class Row:
    """A check in the list: `anchor` is empty where nothing more is told of it."""

    word: str
    red: bool
    name: str
    anchor: str
    note: str
    elements: str
    calls: str
    seconds: str


@dataclass(frozen=True, slots=True)
class Table:
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int
    more: str


@dataclass(frozen=True, slots=True)
class SourceLine:
    number: str
    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Source:
    place: str
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """A finding with everything that belongs to it."""

    title: str
    warning: bool
    pair: str
    message: str
    cause: str
    hint: str
    also: str
    tables: tuple[Table, ...]
    heat: Heat | None
    plot: Plot | None
    source: Source | None
    frames: tuple[Frame | str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A check of which more is told; `facts` are (label, text), `again` and `saved` commands."""

    anchor: str
    word: str
    red: bool
    name: str
    facts: tuple[tuple[str, str], ...]
    broken: str
    reason: str
    notes: tuple[str, ...]
    findings: tuple[Told, ...]
    faults: tuple[str, ...]
    printed: str
    again: str
    saved: tuple[str, ...]


def render(report: Report) -> str:
    """One self-contained page."""
    sections = tuple(_section(place, check, report.argv) for place, check in enumerate(report.checks) if _is_told(check))
    return _template().render(
        headline=_headline(report), good=report.exit_code == 0, counts=tuple(_counts(report)), rows=tuple(starmap(_row, enumerate(report.checks))),
        sections=sections, facts=tuple(_run_facts(report)), crashed=clean(report.crashed or ""))


def of_one(check: CaseResult) -> str:
    """The page of a check that no spec describes."""
    return _template().render(headline=f"{check.name}: {check.verdict}", good=bool(check.ok), counts=(), rows=(_row(0, check),),
                              sections=(_section(0, check, None),), facts=(), crashed="")


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("gradverify.report.html", "templates"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=_harmless)
    return environment.get_template("page.html.j2")


def _harmless(value: object) -> object:
    """Whatever a page says goes through here: text of the checked code may hold anything. Then it is escaped."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# ---- the run
def _headline(report: Report) -> str:
    red = sum(status.is_red(check) for check in report.checks)
    if report.crashed:
        return "gradverify itself failed"
    head = "interrupted: " if report.interrupted else ""
    if red:
        return f"{head}{red} of {numbers.counted(len(report.checks), 'check')} not as expected"
    judged = sum(check.verdict not in ("skip", "not_run") for check in report.checks)
    if not judged:
        return f"{head}nothing was checked"
    return f"{head}{numbers.counted(judged, 'check')} as expected"


def _counts(report: Report) -> Iterator[tuple[str, str]]:
    """(word, "3 failed"), worst first."""
    words = [status.outcome(check) for check in report.checks]
    yield from ((word, f"{words.count(word)} {said}") for word, said in SAID.items() if word in words)
    if report.summary.warnings:
        yield "WARNING", numbers.counted(report.summary.warnings, "warning")


def _run_facts(report: Report) -> Iterator[tuple[str, str]]:
    environment = report.environment
    yield "command", one_line(shlex.join(["gradverify", *report.argv]))
    yield "started", one_line(report.started_at)
    yield "took", numbers.seconds(report.duration_s)
    yield "exit code", str(report.exit_code)
    yield "gradverify", one_line(report.tool.version)
    yield "Python", one_line(environment.python)
    yield "torch", one_line(environment.torch or "not installed")
    yield "NumPy", one_line(environment.numpy or "not installed")
    yield "platform", one_line(environment.platform)
    yield "CUDA devices", ", ".join(map(one_line, environment.devices)) or "none"
    if environment.reduced_precision:
        yield "fewer bits on CUDA", ", ".join(map(one_line, environment.reduced_precision))
    if environment.threads is not None:
        yield "threads", str(environment.threads)


# ---- a check
def _is_told(check: CaseResult) -> bool:
    """Everything but a plain pass, a skip, or what was not run."""
    return bool(check.findings or check.faults) or check.verdict in ("fail", "error", "undecided") or status.is_red(check)


def _row(place: int, check: CaseResult) -> Row:
    shown = judged_comparisons(check)
    elements = sum(comparison.elements for comparison in shown)
    note = one_line(check.reason or "") if check.verdict in ("skip", "not_run", "error") else phrase(check, shown, WIDE)
    calls = check.calls.forward + check.calls.backward
    return Row(status.outcome(check), status.is_red(check), one_line(check.name), _anchor(place) if _is_told(check) else "", note,
               f"{elements:,}" if elements else "", f"{calls:,}" if calls else "", numbers.seconds(check.seconds) if calls else "")


def _anchor(place: int) -> str:
    return f"check-{place + 1}"


def _section(place: int, check: CaseResult, argv: Sequence[str] | None) -> Section:
    notes = filter(None, (told(check.repeats) if check.findings else None, f"no script was written: {check.unsaved}" if check.unsaved else None))
    return Section(_anchor(place), status.outcome(check), status.is_red(check), one_line(check.name), tuple(_facts(check)),
                   status.broken_expectation(check) or "", clean(check.reason or "") if not check.findings else "",
                   tuple(notes), tuple(_told(check)), tuple(missing(check)), clean(check.captured or ""),
                   again(check, argv) if argv is not None else "", tuple(shlex.join(["python", script]) for script in check.saved))


def _facts(check: CaseResult) -> Iterator[tuple[str, str]]:
    yield "function", one_line(check.function.target)
    if check.function.file:
        yield "source", one_line(check.function.file) + (f":{check.function.line}" if check.function.line else "")
    yield "spec", one_line(f"{check.spec.path}:{check.spec.line}")
    yield "run with", one_line(f"{device_of(check)}, {check.dtype}, seed {check.seed}")
    for each in check.inputs:
        apart = "" if each.requires_grad else ", not differentiated"
        yield f"input {one_line(each.name)}", one_line(f"{_shape(each.shape)} {each.dtype}, {each.layout}{apart}")
    for result in check.outputs:
        yield f"output {output(result.index, result.name)}", one_line(f"{_shape(result.shape)} {result.dtype}")
    if check.mode:
        yield "compared", one_line(f"{check.mode}: {check.mode_reason or ''}".removesuffix(": "))
    yield "calls", f"{check.calls.forward:,} forward, {check.calls.backward:,} backward, {numbers.seconds(check.seconds)}"


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


# ---- a finding
def _told(check: CaseResult) -> Iterator[Told]:
    """Pictures stand with the first finding of their pair; the source where its line is marked."""
    drawn: set[tuple[str, int | None]] = set()
    for found in check.findings:
        pair = (found.input or "", found.output)
        pictured = check.pictures is not None and pair not in drawn and found.code.startswith("GV1")
        drawn |= {pair} if pictured else set()
        yield Told(
            title_of(found) + (" (known)" if found.known else ""), found.severity == "warning", pair_of(found), clean(found.message),
            clean(f"{found.cause.name}: {found.cause.detail}") if found.cause else "", clean(found.hint or ""), also(found) if found.also else "",
            tuple(_table(comparison) for comparison in comparisons_of(found, check) if comparison.worst),
            _heat(check, found) if pictured else None, _plot(check, found) if pictured else None, _source(check, found),
            tuple(folded(found.frames, check.function.file)))


def _table(comparison: Comparison) -> Table:
    shown = comparison.worst[:ROWS]
    headers = headers_of(comparison, shown, LOOK)
    return Table(headers, tuple(cells_of(entry, comparison, LOOK) for entry in shown), headers.index("analytic"), more_of(comparison, shown, LOOK))


def _heat(check: CaseResult, found: Finding) -> Heat | None:
    maps = check.pictures.maps if check.pictures else ()
    return next((heat(each) for each in maps if (each.input, each.output) == (found.input, found.output)), None)


def _plot(check: CaseResult, found: Finding) -> Plot | None:
    elements = check.pictures.elements if check.pictures else ()
    names = (found.output_name, f"y{found.output}")
    return next((plot(each) for each in elements if each.input.name == found.input and each.output.name in names), None)


def _source(check: CaseResult, found: Finding) -> Source | None:
    """The whole definition where it is at hand and holds the line, else the line alone."""
    if found.file is None:
        return None
    place, code = one_line(found.file) + (f":{found.line}" if found.line else ""), check.pictures.code if check.pictures else None
    if code is not None and found.line is not None and code.file == found.file and code.first <= found.line < code.first + len(code.lines):
        lines = tuple(SourceLine(str(number), clean(text), number == found.line) for number, text in enumerate(code.lines, code.first))
        near = lines if len(lines) <= WHOLE else lines[max(0, found.line - code.first - AROUND):found.line - code.first + AROUND + 1]
        return Source(place, near)
    return Source(place, (SourceLine(str(found.line or ""), clean(found.source).strip("\n"), True),) if found.source else ())


HEIGHT, TALL = 260, 640     # pixels: of a pass, and of what has more to tell


def cell(shown: CaseResult | Report) -> str:
    """HTML to stand inside of another page."""
    page = render(shown) if isinstance(shown, Report) else of_one(shown)
    height = HEIGHT if shown.ok and isinstance(shown, CaseResult) and not shown.findings else TALL
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{height}px;border:0" title="gradverify"></iframe>'
