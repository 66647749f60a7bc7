"""`gradverify check`: read the specs, run what is selected, show it, leave the exit code of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.asked import CHECK_FORMAT, CHECK_FORMATS, OF_CHECK, Asked, Settled, command, configured, settle
from gradverify.cli.baseline import Kept, brought_up_to_date, opened
from gradverify.cli.gather import Gathered, gather, nothing_selected, others, project_here, spec_problems, with_torch, worded
from gradverify.cli.output import NotWritten, Output
from gradverify.cli.progress import Progress
from gradverify.cli.reports import annotated, begun, beside_specs, promised, saving, summarised, written
from gradverify.model.case import Case
from gradverify.model.event import CheckFinished, CheckStarted, Event, Planned, RunFinished, RunStarted, Selection
from gradverify.model.problem import INTERRUPTED, NOT_JUDGED, NOTHING_CHECKED, OK, USAGE
from gradverify.model.report import Gate, Report, judged
from gradverify.model.result import CaseResult
from gradverify.report.numbers import counted

if TYPE_CHECKING:
    from gradverify.cli.reports import Lines
    from gradverify.running.crew import Crew
    from gradverify.running.git import Changes
    from gradverify.running.memory import Memory
    from gradverify.running.signals import Signals


REASONS = 20      # reasons that are told


@dataclass(frozen=True)
class Concerned:
    """`notes`: how many there are, and with `-v` why."""

    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()


def affected(cases: Sequence[Case], asked: Asked) -> Concerned:
    """All of them where no change was asked about. Raises ProblemsError where git cannot tell what changed."""
    changes = _changes(asked)
    if changes is None:
        return Concerned(tuple(cases))
    from gradverify.running.affected import reasons

    why = reasons(cases, changes, Path.cwd())
    told = [f"affected: {name}: {reason}" for name, reason in why.items()] if asked.verbose else []
    more = [f"affected: {len(told) - REASONS} more"] if len(told) > REASONS else []
    notes = (_affected_summary(len(why), cases, asked, changes), *told[:REASONS], *more) if cases else ()
    return Concerned(tuple(case for case in cases if case.id in why), notes)


def _affected_summary(count: int, cases: Sequence[Case], asked: Asked, changes: Changes) -> str:
    """A hook does not say of how many: it has not read all specs."""
    checks = f"{count or 'none'} of {counted(len(cases), 'check')}" if asked.changed_from else counted(count, "check") if count else "no check"
    return f"{checks} {'is' if count <= 1 else 'are'} affected by {counted(changes.count, 'changed file')}"


def _changes(asked: Asked) -> Changes | None:
    if asked.changed_from is None:
        given: Changes | None = asked.changes
        return given
    from gradverify.running.git import since

    return since(asked.changed_from, Path.cwd())


def watched(events: Iterable[Event], gate: Gate, progress: Progress, show: Callable[[CaseResult], None]) -> Iterator[Event]:
    """The events, unchanged. `show` gets each result as the gate judges it."""
    try:
        progress.wait("starting torch")
        for event in events:
            progress.clear()
            _tell(event, gate, progress, show)
            yield event
    finally:
        progress.clear()


def collected(events: Iterable[Event]) -> list[Event]:
    """Collect all events; after Ctrl-C, those until then and the end of the run."""
    seen: list[Event] = []
    try:
        for event in events:
            seen.append(event)
    except KeyboardInterrupt:
        if not seen:
            raise
        seen.append(RunFinished(0.0, INTERRUPTED))
    return seen


def _tell(event: Event, gate: Gate, progress: Progress, show: Callable[[CaseResult], None]) -> None:
    if isinstance(event, RunStarted):
        progress.begin(event.total)
    elif isinstance(event, CheckStarted):
        progress.show(event.name)
    elif isinstance(event, CheckFinished):
        show(judged(event.result, gate))
        progress.ended(event.result.name)


@dataclass(frozen=True)
class Chosen:
    """`cases` run, in this order; `order`: their ids, as the specs have them. `notes`: sentences about the selection, for stderr.
    `left_out`: there were some, and keyword and tags have left none."""

    cases: tuple[Case, ...]
    order: tuple[str, ...]
    selection: Selection
    memory: Memory
    notes: tuple[str, ...] = ()
    left_out: bool = False


def choose(gathered: Gathered, settled: Settled) -> Chosen:
    """What changes affect; of that by keyword and tag; of those what failed last time; of those one shard. Raises ProblemsError for an expression
    that cannot be read."""
    from gradverify.running.memory import memory_at
    from gradverify.running.select import failed_first, select, sharded

    asked, memory = settled.asked, memory_at(Path.cwd())
    concerned = affected(gathered.cases, asked)
    named = select(concerned.cases, keyword=asked.keyword, tags=asked.tags)
    failed = _remembered(gathered, memory) if asked.last_failed or asked.failed_first else frozenset()
    fell = tuple(case for case in named if memory.key(case.id) in failed)
    whole = fell or named if asked.last_failed else named
    cases, shard = sharded(whole, *settled.shard, replace(settled.gate, exit_zero=False), settled.running.repeat) if settled.shard else (whole, None)
    selection = Selection(tuple(asked.paths or ()), asked.keyword, asked.tags, gathered.written - len(whole), shard, settled.running.repeat,
                          len(gathered.left_out))
    notes = [gathered.message or (None if named else nothing_selected(concerned.cases, asked.keyword, asked.tags)),
             *concerned.notes, *(others(gathered) if asked.verbose else ()),
             _nothing_failed(named, len(failed)) if asked.last_failed and named and not fell else None]
    order = tuple(case.id for case in cases)
    ordered = failed_first(cases, fell) if asked.failed_first else cases
    return Chosen(ordered, order, selection, memory, tuple(filter(None, notes)), bool(concerned.cases) and not named)


def keep_in_mind(chosen: Chosen, gathered: Gathered, report: Report) -> None:
    """What `--lf` and `--ff` of the next run need."""
    from gradverify.running.memory import read, remember

    remember(chosen.memory, read(chosen.memory, gathered.files, gathered.origins), report.checks, chosen.cases)


def _remembered(gathered: Gathered, memory: Memory) -> frozenset[str]:
    from gradverify.running.memory import existing, read, recall

    return existing(memory, recall(memory), read(memory, gathered.files, gathered.origins))


def _nothing_failed(named: Sequence[Case], others: int) -> str:
    run = "the one check runs" if len(named) == 1 else f"all {len(named)} checks run"
    if not others:
        return f"--lf: no check is remembered as failed, so {run}"
    return f"--lf: none of the selected checks is remembered as failed ({others} {'other is' if others == 1 else 'others are'}), so {run}"


@command(*OF_CHECK, format=CHECK_FORMAT)
def check_command(asked: Asked, out: Output) -> int:
    """Compare gradients with finite differences, element by element, and look for other faults of backward."""
    return run_check(asked, out)


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
    from gradverify.cli.reports import Lines
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
    from gradverify.running.select import Repeating

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
