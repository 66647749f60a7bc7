"""`gradverify check`: read the specs, run what is selected, show it, leave the exit code of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from gradverify.cli import options as o
from gradverify.cli.asked import Asked, Running, Settled, settle
from gradverify.cli.gather import Gathered, gather, spec_problems
from gradverify.cli.nearby import nothing_selected
from gradverify.cli.output import Output, forget, keep, promise
from gradverify.cli.words import worded
from gradverify.model.case import Case
from gradverify.model.event import Event, Planned, Selection
from gradverify.model.report import USAGE, Report
from gradverify.model.result import CaseResult

if TYPE_CHECKING:
    from gradverify.running.crew import Crew


def check(
    ctx: typer.Context, paths: o.Paths = None,
    eps: o.Eps = None, atol: o.Atol = None, rtol: o.Rtol = None, seed: o.Seed = None, device: o.Device = None, dtype: o.Dtype = None,
    mode: o.Mode = None, select: o.Select = None, ignore: o.Ignore = None, strict: o.Strict = False,
    keyword: o.Keyword = None, tags: o.Tags = None, exitfirst: o.ExitFirst = False, maxfail: o.MaxFail = None,
    jobs: o.Jobs = None, timeout: o.Timeout = None, import_timeout: o.ImportTimeout = None, memory: o.Memory = None, no_isolate: o.NoIsolate = False,
    undecided: o.Undecided = None, fail_on_skip: o.FailOnSkip = False, require_device: o.RequireDevice = None,
    format: o.Format = None, report: o.Reports = None, max_rows: o.MaxRows = 10, verbose: o.Verbose = 0, quiet: o.Quiet = False,
    color: o.Color = "auto", width: o.Width = None, no_progress: o.NoProgress = False,
) -> int:
    """Check gradients element by element against finite differences."""
    return run_check(Asked(**ctx.params), ctx.obj)


def run_check(asked: Asked, out: Output) -> int:
    """Everything that can be refused is refused before anything runs."""
    from gradverify.rules.catalogue import codes
    from gradverify.running.select import select

    settled = settle(asked, codes(), out, os.environ)
    settled = replace(settled, reports=tuple(promise(path) for path in settled.reports))
    gathered = gather(asked.paths or (), settled.said)
    if gathered.problems:
        return refuse(gathered, out)
    cases = select(gathered.cases, keyword=asked.keyword, tags=asked.tags)
    message = gathered.message or (None if cases else nothing_selected(gathered.cases, asked.keyword, asked.tags))
    if message:
        out.say(message)
    for path in settled.reports:
        forget(path)
    return conclude(_run(cases, gathered, settled, out), settled, out)


def refuse(gathered: Gathered, out: Output) -> int:
    """Every problem, and the count that closes them."""
    out.problems(gathered.problems)
    count = spec_problems(gathered)
    if count:
        out.say(f"nothing ran: {count}")
    return USAGE


def _run(cases: Sequence[Case], gathered: Gathered, settled: Settled, out: Output) -> Report:
    from gradverify import __version__
    from gradverify.cli.progress import Progress
    from gradverify.cli.watch import collected, watched
    from gradverify.model.report import fold

    out.outlives_reader = bool(settled.reports)
    if settled.as_json:
        out.keep_stdout()
    beside = out.beside_stderr()
    progress = Progress(beside if settled.progress else None, beside if settled.notes else None)
    events = _events(cases, gathered, settled, out, progress.planned)
    seen = collected(watched(events, settled.gate, progress, _shower(cases, gathered, settled, out)))
    return fold(seen, settled.gate, __version__)


def _events(cases: Sequence[Case], gathered: Gathered, settled: Settled, out: Output, planned: Planned) -> Iterator[Event]:
    from gradverify.running.schedule import run

    asked = settled.asked
    selection = Selection(tuple(asked.paths or ()), asked.keyword, asked.tags, gathered.written - len(cases))
    events = run(cases, argv=out.arguments, selection=selection, crew=_crew(settled.running, planned), maxfail=settled.running.maxfail,
                 gate=settled.gate)
    return worded(events, settled.gate, gathered.names)


def _crew(running: Running, planned: Planned) -> Crew:
    from gradverify.running.crew import LOADING, Here, Workers

    if not running.isolated:
        return Here(planned)
    return Workers(running.jobs, running.timeout, running.loading or LOADING, running.memory, planned)


def _shower(cases: Sequence[Case], gathered: Gathered, settled: Settled, out: Output) -> Callable[[CaseResult], None]:
    """What to do with each result as it comes: print its line, unless stdout is to carry JSON."""
    if settled.as_json:
        return lambda result: None
    from gradverify.report.terminal.line import name_width
    from gradverify.report.terminal.view import check_line

    column = name_width(case.name for case in cases)
    return lambda result: out.write(check_line(result, settled.look, column, gathered.origins.get(result.id)))


def conclude(report: Report, settled: Settled, out: Output) -> int:
    """Files first, so that a closed pipe cannot cost them; then what belongs at the end of stdout."""
    from gradverify.report import json
    from gradverify.report.terminal.view import closing

    for path in settled.reports:
        keep(path, json.render(report))
    text = json.render(report) if settled.as_json else closing(report, settled.look)
    if report.crashed or any(check.faults for check in report.checks):
        from gradverify.cli.bug import bug_reports

        for bug in bug_reports(report):
            out.say(bug)
    out.write(text)
    return report.exit_code
