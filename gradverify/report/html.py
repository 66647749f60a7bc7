"""The report as one HTML page without network, script or picture: verdicts first, then each failure with its numbers, then how it was run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gradverify.model.report import Report
from gradverify.model.result import CaseResult, Comparison, Finding
from gradverify.report import numbers
from gradverify.report.look import Look
from gradverify.report.names import device_of, folded, output, pair_of, readable, title_of
from gradverify.report.reproduce import again
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.line import judged_comparisons, phrase
from gradverify.report.terminal.panel import also, comparisons_of, missing
from gradverify.report.terminal.table import cells_of, error_map, headers_of, more_of
from gradverify.report.terminal.view import SAID

LOOK = Look()
ROWS = 10           # of a table of elements
WIDE = 200          # columns that a phrase may take: it wraps


def render(report: Report) -> str:
    """One self-contained page."""
    report = readable(report)
    words = [status.outcome(check) for check in report.checks]
    counts = [(word, f"{words.count(word)} {said}") for word, said in SAID.items() if word in words]
    if report.summary.warnings:
        counts.append(("WARNING", numbers.counted(report.summary.warnings, "warning")))
    return _page(_headline(report), report.exit_code == 0, report.checks, report.argv, counts, dict(_run_facts(report)), report.crashed)


def of_one(check: CaseResult) -> str:
    """The page of a check that no spec describes."""
    return _page(f"{check.name}: {check.verdict}", bool(check.ok), (readable(check),))


def _page(headline: str, good: bool, checks: Sequence[CaseResult], argv: Sequence[str] | None = None, counts: Sequence[tuple[str, str]] = (),
          facts: Mapping[str, str] | None = None, crashed: str | None = None) -> str:
    shown = [_check(place, check, argv) for place, check in enumerate(checks, 1)]
    return _template().render(headline=headline, good=good, checks=shown, counts=counts, facts=facts or {}, crashed=crashed)


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("gradverify.report", "templates"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.get_template("page.html.j2")


def _headline(report: Report) -> str:
    red = sum(status.is_red(check) for check in report.checks)
    if report.crashed:
        return "gradverify itself failed"
    head = "interrupted: " if report.interrupted else ""
    if red:
        return f"{head}{red} of {numbers.counted(len(report.checks), 'check')} not as expected"
    judged = sum(check.verdict not in ("skip", "not_run") for check in report.checks)
    return f"{head}{numbers.counted(judged, 'check')} as expected" if judged else f"{head}nothing was checked"


def _run_facts(report: Report) -> Iterator[tuple[str, str]]:
    environment = report.environment
    yield "command", shlex.join(["gradverify", *report.argv])
    yield "started", report.started_at
    yield "took", numbers.seconds(report.duration_s)
    yield "exit code", str(report.exit_code)
    yield "gradverify", report.tool.version
    yield "Python", environment.python
    yield "torch", environment.torch or "not installed"
    yield "NumPy", environment.numpy or "not installed"
    yield "platform", environment.platform
    yield "CUDA devices", ", ".join(environment.devices) or "none"
    if environment.reduced_precision:
        yield "fewer bits on CUDA", ", ".join(environment.reduced_precision)
    if environment.threads is not None:
        yield "threads", str(environment.threads)


def _check(place: int, check: CaseResult, argv: Sequence[str] | None) -> Mapping[str, Any]:
    """A check with what the page shows of it; `anchor` is empty where there is only the line of a plain pass, a skip, or what was not run."""
    shown, calls, red = judged_comparisons(check), check.calls.forward + check.calls.backward, status.is_red(check)
    elements = sum(comparison.elements for comparison in shown)
    has_more = check.findings or check.faults or check.verdict in ("fail", "error", "undecided") or red
    return {
        "check": check, "word": status.outcome(check), "red": red, "anchor": f"check-{place}" if has_more else "",
        "note": check.reason or "" if check.verdict in ("skip", "not_run", "error") else phrase(check, shown, WIDE),
        "elements": f"{elements:,}" if elements else "", "calls": f"{calls:,}" if calls else "",
        "seconds": numbers.seconds(check.seconds) if calls else "",
        "broken": status.broken_expectation(check), "faults": tuple(missing(check)), "facts": dict(_facts(check)),
        "findings": [_finding(found, check) for found in check.findings], "again": again(check, argv) if argv is not None else "",
        "saved": [shlex.join(["python", script]) for script in check.saved]}


def _facts(check: CaseResult) -> Iterator[tuple[str, str]]:
    yield "function", check.function.target
    if check.function.file:
        yield "source", check.function.file + (f":{check.function.line}" if check.function.line else "")
    yield "spec", f"{check.spec.path}:{check.spec.line}"
    yield "run with", f"{device_of(check)}, {check.dtype}, seed {check.seed}"
    for each in check.inputs:
        yield f"input {each.name}", f"{list(each.shape)} {each.dtype}, {each.layout}{'' if each.requires_grad else ', not differentiated'}"
    for result in check.outputs:
        yield f"output {output(result.index, result.name)}", f"{list(result.shape)} {result.dtype}"
    if check.mode:
        yield "compared", f"{check.mode}: {check.mode_reason or ''}".removesuffix(": ")
    yield "calls", f"{check.calls.forward:,} forward, {check.calls.backward:,} backward, {numbers.seconds(check.seconds)}"


def _finding(found: Finding, check: CaseResult) -> Mapping[str, Any]:
    return {"found": found, "title": title_of(found), "pair": pair_of(found), "also": also(found) if found.also else "",
            "tables": [_table(comparison) for comparison in comparisons_of(found, check) if comparison.worst],
            "frames": list(folded(found.frames, check.function.file))}


def _table(comparison: Comparison) -> Mapping[str, Any]:
    """The worst elements, `names` columns of them names, and the error map of a small Jacobian."""
    shown = comparison.worst[:ROWS]
    headers = headers_of(comparison, shown, LOOK)
    drawn = paint(error_map(comparison.error_map, LOOK), LOOK) if comparison.error_map else ""
    return {"headers": headers, "rows": [cells_of(entry, comparison, LOOK) for entry in shown], "names": headers.index("analytic"),
            "more": more_of(comparison, shown, LOOK), "map": drawn}


HEIGHT, TALL = 260, 640     # pixels: of a pass, and of what has more to tell


def cell(shown: CaseResult | Report) -> str:
    """HTML to stand inside of another page."""
    page = render(shown) if isinstance(shown, Report) else of_one(shown)
    height = HEIGHT if shown.ok and isinstance(shown, CaseResult) and not shown.findings else TALL
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{height}px;border:0" title="gradverify"></iframe>'
