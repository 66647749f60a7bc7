"""`gradverify check`: read the specs, run what is selected, show it, leave the exit code of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.baseline import brought_up_to_date, opened
from gradverify.cli.gather import Gathered, gather, nothing_selected, others, project_here, spec_problems, with_torch, worded
from gradverify.cli.options import CHECK_FORMAT, OF_CHECK, Options, Settled, command, configured, settle
from gradverify.cli.output import NotWritten, Output, forget, is_read_on_github, promise
from gradverify.cli.progress import Progress
from gradverify.cli.reports import annotated, promised, summarised, written
from gradverify.model.case import Case
from gradverify.model.event import CheckFinished, CheckStarted, Event, RunFinished, RunStarted, Selection
from gradverify.model.problem import INTERRUPTED, NOTHING_CHECKED, OK, USAGE
from gradverify.model.report import Gate, judged
from gradverify.model.result import CaseResult
from gradverify.report.numbers import counted

if TYPE_CHECKING:
    from gradverify.model.event import Planned
    from gradverify.running.crew import Crew
    from gradverify.running.git import Changes
    from gradverify.running.memory import Memory
    from gradverify.running.signals import Signals
    from gradverify.spec.project import Project

REASONS = 20      # reasons that are named


@dataclass(frozen=True)
class Chosen:
    """`cases` run, in this order. `notes`: sentences about the selection, for stderr. `left_out`: there were some, and keyword and tags have left
    none."""

    cases: tuple[Case, ...]
    selection: Selection
    notes: tuple[str, ...] = ()
    left_out: bool = False


@command(*OF_CHECK, format=CHECK_FORMAT)
def check_command(options: Options, out: Output) -> int:
    """Compare gradients with finite differences, element by element, and look for other faults of backward."""
    return run_check(options, out)


def run_check(options: Options, out: Output) -> int:
    """Everything that can be refused is refused before anything runs."""
    from gradverify.running.signals import Signals

    project = project_here()
    options = configured(options, project)
    settled = settle(options, out)
    reports = promised(settled.reports, options.baseline)
    saves = options.save_failures and str(promise(Path(options.save_failures) / "failure.npz", "--save-failures").parent)
    with nullcontext() if options.no_isolate else Signals() as signals:
        for file in reports:
            forget(file.path)       # of an earlier run: nobody is to take it for one of this run
        return _run(replace(settled, reports=reports), project, saves, signals, out)


def _run(settled: Settled, project: Project, saves: str | None, signals: Signals | None, out: Output) -> int:
    """`saves`: the folder of `--save-failures`."""
    from gradverify import __version__
    from gradverify.model.report import fold
    from gradverify.report import jsonl
    from gradverify.report.terminal.view import closing
    from gradverify.running.memory import memory_at, remember
    from gradverify.running.schedule import run
    from gradverify.running.server import begin

    options, reports = settled.options, settled.reports
    if not options.no_isolate:
        begin()     # torch is imported beside the reading of specs
    gathered = gather(options.paths or (), settled.settings, project)
    if gathered.problems:
        return refuse(gathered, out)
    baseline = opened(options, gathered)
    gate = replace(settled.gate, baseline=baseline.rule if baseline else None)
    memory = memory_at(Path.cwd())
    chosen = choose(gathered, settled, memory)
    for note in chosen.notes:
        out.say(note)
    with_torch(chosen.cases)
    out.outlives_reader = bool(reports) or options.baseline_update or options.baseline_prune
    if settled.for_programs:
        out.keep_stdout()
    beside = out.beside_stderr()
    progress = Progress(beside if settled.watched else None, None if options.quiet else beside)
    show = _shower(chosen.cases, gathered, settled, out)
    crew = _crew(settled, progress.planned, signals)
    cases = [replace(case, save=saves) for case in chosen.cases]
    limit = 1 if options.exitfirst else options.maxfail
    events: Iterable[Event] = run(cases, argv=out.arguments, selection=chosen.selection, crew=crew, maxfail=limit, gate=gate)
    events = worded(events, gate, gathered.names)
    if options.format == "jsonl":
        events = _streamed(events, lambda event: out.write(jsonl.line(event, gate, __version__)))
    report = fold(collected(watched(events, gate, progress, show)), gate, __version__)
    remember(memory, gathered.files, gathered.origins, report.checks, chosen.cases)
    failures = written(reports, report)     # before stdout, so that a closed pipe cannot cost them
    notes = brought_up_to_date(baseline, report, failures) if baseline else ()
    missing = summarised(report, os.environ)
    if missing:
        out.say(missing)
    if report.crashed or any(check.faults for check in report.checks):
        from gradverify.cli.bug import bug_reports

        for bug in bug_reports(report):
            out.say(bug)
    text = jsonl.last_line(report) if options.format == "jsonl" else report.to_json() if settled.for_programs else closing(report, settled.look)
    out.write(text, annotated(report) if is_read_on_github(options.format, os.environ) else "")
    for note in notes:
        out.say(note)
    if failures:
        raise NotWritten("\n".join(failures))
    may_be_empty = options.changes is not None and not chosen.left_out     # a commit that no check is affected by, or none can run for
    return OK if report.exit_code == NOTHING_CHECKED and may_be_empty else report.exit_code


def refuse(gathered: Gathered, out: Output) -> int:
    """Every problem, and the count that closes them."""
    out.problems(gathered.problems)
    count = spec_problems(gathered)
    if count:
        out.say(f"nothing ran: {count}")
    return USAGE


# ---- what runs
def choose(gathered: Gathered, settled: Settled, memory: Memory) -> Chosen:
    """What changes affect; of that by keyword and tag; of those what failed last time; of those one shard. Raises ProblemsError for an expression
    that cannot be read, and where git cannot tell what changed."""
    from gradverify.running.memory import recall
    from gradverify.running.select import select, sharded

    options, concerned, notes = settled.options, gathered.cases, list[str | None]()
    changes = _changes(options)
    if changes is not None:
        concerned, why = _affected(gathered.cases, changes, options)
        notes += why
    named = select(concerned, keyword=options.keyword, tags=options.tags)
    notes.insert(0, gathered.message or (None if named else nothing_selected(concerned, options.keyword, options.tags)))
    notes += others(gathered) if options.verbose else ()
    whole = named
    if options.last_failed and named:
        failed = recall(memory, gathered.files, gathered.origins)
        whole = tuple(case for case in named if memory.key(case.id) in failed) or named
        notes.append(_nothing_failed(named, len(failed)) if not failed & {memory.key(case.id) for case in named} else None)
    shard, cases = None, whole
    if "shard" in settled.values:
        index, count = settled.values["shard"]
        cases, shard = sharded(whole, index, count, replace(settled.gate, exit_zero=False))
    selection = Selection(tuple(options.paths or ()), options.keyword, options.tags, gathered.written - len(whole), shard, len(gathered.left_out))
    return Chosen(cases, selection, tuple(filter(None, notes)), bool(concerned) and not named)


def _changes(options: Options) -> Changes | None:
    if options.changed_from is None:
        given: Changes | None = options.changes
        return given
    from gradverify.running.git import since

    return since(options.changed_from, Path.cwd())


def _affected(cases: Sequence[Case], changes: Changes, options: Options) -> tuple[tuple[Case, ...], list[str]]:
    """The affected cases, how many there are, and with `-v` why. A hook does not say of how many: it has not read all specs."""
    from gradverify.running.affected import reasons

    why = reasons(cases, changes, Path.cwd())
    count = len(why)
    checks = f"{count or 'none'} of {counted(len(cases), 'check')}" if options.changed_from else counted(count, "check") if count else "no check"
    notes = [f"{checks} {'is' if count <= 1 else 'are'} affected by {counted(changes.count, 'changed file')}"] if cases else []
    if options.verbose:
        notes += [f"affected: {name}: {reason}" for name, reason in why.items()][:REASONS]
        notes += [f"affected: {count - REASONS} more"] if count > REASONS else []
    return tuple(case for case in cases if case.id in why), notes


def _nothing_failed(named: Sequence[Case], others: int) -> str:
    run = "the one check runs" if len(named) == 1 else f"all {len(named)} checks run"
    if not others:
        return f"--lf: no check is remembered as failed, so {run}"
    return f"--lf: none of the selected checks is remembered as failed ({others} {'other is' if others == 1 else 'others are'}), so {run}"


# ---- while it runs
def _crew(settled: Settled, planned: Planned, signals: Signals | None) -> Crew:
    from gradverify.running.crew import LOADING, Here, Workers

    if settled.options.no_isolate:
        return Here(planned)
    given = settled.values
    return Workers(given.get("jobs", 1), given.get("timeout"), given.get("import_timeout", LOADING), given.get("memory"), planned, signals)


def _shower(cases: Sequence[Case], gathered: Gathered, settled: Settled, out: Output) -> Callable[[CaseResult], None]:
    """What to do with each result as it comes: print its line, unless stdout is for programs."""
    if settled.for_programs:
        return lambda result: None
    from gradverify.report.terminal.line import name_width
    from gradverify.report.terminal.view import check_line

    column = name_width(case.name for case in cases)
    return lambda result: out.write(check_line(result, settled.look, column, gathered.origins.get(result.id)))


def _streamed(events: Iterable[Event], write: Callable[[Event], None]) -> Iterator[Event]:
    for event in events:
        write(event)
        yield event


def watched(events: Iterable[Event], gate: Gate, progress: Progress, show: Callable[[CaseResult], None]) -> Iterator[Event]:
    """The events, unchanged. `show` gets each result as the gate judges it."""
    try:
        progress.wait("starting torch")
        for event in events:
            progress.clear()
            if isinstance(event, RunStarted):
                progress.begin(event.total)
            elif isinstance(event, CheckStarted):
                progress.show(event.name)
            elif isinstance(event, CheckFinished):
                show(judged(event.result, gate))
                progress.ended(event.result.name)
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
