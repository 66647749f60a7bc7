"""`gradverify check`: read the specs, run what is selected, show it, leave the exit code of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from gradverify.cli import options as o
from gradverify.cli.asked import CHECK_FORMATS, Asked, Settled, settle
from gradverify.cli.baseline import Kept, brought_up_to_date, opened
from gradverify.cli.chosen import Chosen, choose, keep_in_mind
from gradverify.cli.configured import configured, project_here
from gradverify.cli.environment import with_torch
from gradverify.cli.gather import Gathered, gather, spec_problems
from gradverify.cli.github import annotated, summarised
from gradverify.cli.output import NotWritten, Output
from gradverify.cli.reports import begun, beside_specs, promised, saving, written
from gradverify.cli.words import worded
from gradverify.model.case import Case
from gradverify.model.event import Event, Planned
from gradverify.model.problem import NOT_JUDGED, NOTHING_CHECKED, OK, USAGE
from gradverify.model.report import Report
from gradverify.model.result import CaseResult

if TYPE_CHECKING:
    from gradverify.cli.stream import Lines
    from gradverify.running.crew import Crew
    from gradverify.running.signals import Signals


def check(
    ctx: typer.Context, paths: o.Paths = None,
    keyword: o.Keyword = None, tags: o.Tags = None, last_failed: o.LastFailed = False, failed_first: o.FailedFirst = False,
    changed_from: o.ChangedFrom = None, shard: o.Part = None, exitfirst: o.ExitFirst = False, maxfail: o.MaxFail = None,
    jobs: o.Jobs = None, timeout: o.Timeout = None, import_timeout: o.ImportTimeout = None, memory: o.Memory = None, repeat: o.Times = None,
    no_isolate: o.NoIsolate = False,
    eps: o.Eps = None, atol: o.Atol = None, rtol: o.Rtol = None, seed: o.Seed = None, device: o.Device = None, dtype: o.Dtype = None,
    mode: o.Mode = None, select: o.Select = None, ignore: o.Ignore = None, strict: o.Strict = False,
    no_witness: o.NoWitness = False, witness: o.Witness = False,
    undecided: o.Undecided = None, fail_on_skip: o.FailOnSkip = None, require_device: o.RequireDevice = None,
    baseline: o.KnownFile = None, baseline_update: o.UpdateKnown = False, baseline_prune: o.PruneKnown = False, exit_zero: o.ExitZero = False,
    format: o.CheckFormat = None, report: o.Reports = None, save_failures: o.SaveFailures = None, max_rows: o.MaxRows = None,
    durations: o.Durations = None,
    verbose: o.Verbose = 0, quiet: o.Quiet = False,
    color: o.Color = "auto", width: o.Width = None, no_progress: o.NoProgress = False,
) -> int:
    """Compare gradients with finite differences, element by element, and look for other faults of backward."""
    return run_check(Asked(**ctx.params), ctx.obj)


def run_check(asked: Asked, out: Output) -> int:
    """Everything that can be refused is refused before anything runs."""
    from gradverify.rules.catalogue import codes
    from gradverify.running.server import begin
    from gradverify.running.signals import heard

    project = project_here()
    settled = settle(configured(asked, project), codes(), out, os.environ, CHECK_FORMATS)
    settled = replace(settled, reports=promised(settled.reports))
    saves = saving(asked.save_failures)
    if settled.running.isolated:
        begin()     # torch is imported beside the reading of specs
    gathered = gather(asked.paths or (), settled.said, project)
    beside_specs(settled.reports, gathered.files)
    if gathered.problems:
        return refuse(gathered, out)
    kept = opened(settled.asked, gathered, settled.reports)
    settled = replace(settled, gate=replace(settled.gate, baseline=kept.rule if kept else None))
    chosen = choose(gathered, settled)
    for note in chosen.notes:
        out.say(note)
    chosen = replace(chosen, cases=tuple(replace(case, save=saves) for case in chosen.cases))
    with_torch(chosen.cases)
    with heard(settled.running.isolated) as signals:
        begun(settled.reports, _unfinished(chosen, gathered, settled, out))
        lines = _lines(settled, out)
        report = _run(chosen, gathered, settled, lines, out, signals)
        keep_in_mind(chosen, gathered, report)
        code = conclude(report, settled, kept, lines, out)
    may_be_empty = asked.changes is not None and not chosen.left_out       # a commit that no check is affected by, or none can run for
    return OK if code == NOTHING_CHECKED and may_be_empty else code


def refuse(gathered: Gathered, out: Output) -> int:
    """Every problem, and the count that closes them."""
    out.problems(gathered.problems)
    count = spec_problems(gathered)
    if count:
        out.say(f"nothing ran: {count}")
    return USAGE


def _lines(settled: Settled, out: Output) -> Lines:
    """JSON Lines, wherever they are asked for."""
    from gradverify import __version__
    from gradverify.cli.stream import Lines
    from gradverify.report.formats import STREAMED

    return Lines(out if settled.format == "jsonl" else None, [file.path for file in settled.reports if file.kind in STREAMED], __version__)


def _unfinished(chosen: Chosen, gathered: Gathered, settled: Settled, out: Output) -> Report:
    """What is true until the run ends, and stays where it never does: no check has a verdict."""
    from gradverify import __version__
    from gradverify.model.report import fold
    from gradverify.running.schedule import not_finished

    events = not_finished(chosen.cases, argv=out.arguments, selection=chosen.selection, order=chosen.order)
    report = fold(worded(events, settled.gate, gathered.names), settled.gate, __version__)
    return replace(report, exit_code=NOT_JUDGED, interrupted=True, forgiven=None)


def _run(chosen: Chosen, gathered: Gathered, settled: Settled, lines: Lines, out: Output, signals: Signals | None) -> Report:
    from gradverify import __version__
    from gradverify.cli.progress import Progress
    from gradverify.cli.watch import collected, watched
    from gradverify.model.report import fold

    out.outlives_reader = bool(settled.reports) or settled.asked.baseline_update or settled.asked.baseline_prune
    if settled.for_programs:
        out.keep_stdout()
    beside = out.beside_stderr()
    progress = Progress(beside if settled.progress else None, beside if settled.notes else None)
    events = _events(chosen, gathered, settled, out, _crew(settled, progress.planned, signals))
    seen = collected(watched(lines.told(events, settled.gate), settled.gate, progress, _shower(chosen.cases, gathered, settled, out)))
    return fold(seen, settled.gate, __version__)


def _events(chosen: Chosen, gathered: Gathered, settled: Settled, out: Output, crew: Crew) -> Iterator[Event]:
    from gradverify.running.schedule import run

    events = run(chosen.cases, argv=out.arguments, selection=chosen.selection, crew=crew, maxfail=settled.running.maxfail, gate=settled.gate,
                 order=chosen.order)
    return worded(events, settled.gate, gathered.names)


def _crew(settled: Settled, planned: Planned, signals: Signals | None) -> Crew:
    from gradverify.report.formats import pictured
    from gradverify.running.crew import LOADING, Here, Workers
    from gradverify.running.repeat import Repeating

    running, pictures = settled.running, pictured(file.kind for file in settled.reports)
    crew: Crew = Here(planned, pictures=pictures)
    if running.isolated:
        crew = Workers(running.jobs, running.timeout, running.loading or LOADING, running.memory, planned, pictures, signals)
    return Repeating(crew, running.repeat, settled.gate, running.maxfail == 1) if running.repeat > 1 else crew


def _shower(cases: Sequence[Case], gathered: Gathered, settled: Settled, out: Output) -> Callable[[CaseResult], None]:
    """What to do with each result as it comes: print its line, unless stdout is for programs."""
    if settled.for_programs:
        return lambda result: None
    from gradverify.report.terminal.line import name_width
    from gradverify.report.terminal.view import check_line

    column = name_width(case.name for case in cases)
    return lambda result: out.write(check_line(result, settled.look, column, gathered.origins.get(result.id)))


def conclude(report: Report, settled: Settled, kept: Kept | None, lines: Lines, out: Output) -> int:
    """Files first, so that a closed pipe cannot cost them; then what belongs at the end of stdout."""
    from gradverify.report.formats import STREAMED

    failures = written([file for file in settled.reports if file.kind not in STREAMED], report) + lines.end(report)
    notes = brought_up_to_date(kept, report, failures) if kept else ()
    missing = summarised(report, os.environ)
    if missing:
        out.say(missing)
    if report.crashed or any(check.faults for check in report.checks):
        from gradverify.cli.bug import bug_reports

        for bug in bug_reports(report):
            out.say(bug)
    out.write(_end(report, settled), annotated(report) if settled.annotates else "")
    for note in notes:
        out.say(note)
    if failures:
        raise NotWritten("\n".join(failures))
    return report.exit_code


def _end(report: Report, settled: Settled) -> str:
    """What stdout carries once all is known."""
    from gradverify.report.formats import renderer
    from gradverify.report.terminal.view import closing

    if settled.for_programs:
        return renderer("json")(report) if settled.as_json else ""
    return closing(report, settled.look)
