"""`gradverify check`: read the specs, run what is selected, show it, leave the exit code of the
report."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.baseline import brought_up_to_date, opened
from gradverify.cli.gather import (
    Gathered,
    gather,
    nothing_selected,
    others,
    project_here,
    sound,
    with_torch,
    worded,
)
from gradverify.cli.options import (
    CHECK_FORMAT,
    OF_CHECK,
    OPTIONS,
    RANDOM,
    Options,
    Settled,
    command,
    configured,
    settle,
)
from gradverify.cli.output import NotWritten, Output, forget, is_read_on_github
from gradverify.cli.progress import Progress
from gradverify.cli.reports import annotated, promised, summarised, written
from gradverify.cli.without_spec import unwritten
from gradverify.model.case import Case
from gradverify.model.event import (
    CheckFinished,
    CheckStarted,
    Event,
    RunFinished,
    RunStarted,
    Selection,
    Shard,
)
from gradverify.model.problem import INTERRUPTED, NOTHING_CHECKED, OK
from gradverify.model.report import Gate, judged
from gradverify.report.numbers import counted

if TYPE_CHECKING:
    from gradverify.model.event import Planned
    from gradverify.running.affected import Changes
    from gradverify.running.memory import Memory
    from gradverify.running.schedule import Crew
    from gradverify.running.signals import Signals
    from gradverify.spec.project import Project

REASONS = 20  # reasons that are listed at most


@dataclass(frozen=True)
class Chosen:
    """The `cases` to run, in this order. `notes`: sentences about the selection, for stderr.
    `left_out`: keyword and tags have deselected all cases."""

    cases: tuple[Case, ...]
    selection: Selection
    notes: tuple[str, ...] = ()
    left_out: bool = False


PATHS = replace(
    OPTIONS["paths"],
    help="Specs, folders, PATH::NAME for one check, or functions without a spec: FILE.py:Name, "
    "module:Name. Without any: `paths` of pyproject.toml, else specs/, else *.gradverify.yaml.",
)


@command(*OF_CHECK, paths=PATHS, format=CHECK_FORMAT)
def check_command(options: Options, out: Output) -> int:
    """Compare gradients with finite differences, element by element, and look for other faults of
    backward."""
    return run_check(options, out)


def run_check(options: Options, out: Output) -> int:
    """Run `check` and return its exit code. All invalid input is rejected before anything runs."""
    from gradverify.running.signals import Signals

    project = project_here()
    options = configured(options, project)
    settled = settle(options, out)
    reports = promised(settled.reports, options.baseline)
    with nullcontext() if options.no_isolate else Signals() as signals:
        for file in reports:
            forget(file.path)  # a report of an earlier run must not be mistaken for one of this run
        return _run(replace(settled, reports=reports), project, signals, out)


def _run(settled: Settled, project: Project, signals: Signals | None, out: Output) -> int:
    from gradverify import __version__
    from gradverify.model.report import fold
    from gradverify.report import jsonl
    from gradverify.report.terminal.view import closing
    from gradverify.running.memory import memory_at, remember
    from gradverify.running.schedule import Request, run
    from gradverify.running.server import begin

    options, reports = settled.options, settled.reports
    if not options.no_isolate:
        begin()  # imports torch while the specs are read
    named = unwritten(settled, signals, out)
    if isinstance(named, int):
        return named
    gathered = sound(gather(options.paths or (), settled.settings, project, texts=named.texts))
    baseline = opened(options, gathered)
    gate = replace(settled.gate, baseline=baseline.rule if baseline else None)
    memory = memory_at(Path.cwd())
    chosen = choose(gathered, settled, memory)
    for note in chosen.notes:
        out.say(note)
    with_torch(chosen.cases)
    out.outlives_reader = bool(reports) or options.baseline_update
    if settled.for_programs:
        out.keep_stdout()
    stderr = out.stderr_copy()
    progress = Progress(stderr if settled.watched else None, None if options.quiet else stderr)
    write = _writer(chosen.cases, gathered, settled, gate, out)
    crew = _crew(settled, progress.planned, signals)
    limit = 1 if options.exitfirst else settled.values.get("maxfail")
    argv = out.arguments
    if options.seed == RANDOM:  # the number is what repeats the run
        seed = str(settled.settings["seed"])
        out.say(f"--seed random: {seed}")
        argv = tuple(
            seed
            if (before, word) == ("--seed", RANDOM)
            else re.sub("^--seed=.*", f"--seed={seed}", word)
            for before, word in zip(("", *argv), argv, strict=False)
        )
    request = Request(chosen.cases, argv=argv, selection=chosen.selection, gate=gate)
    events = worded(run(request, crew, limit), gate)
    report = fold(followed(events, progress, write), gate, __version__)
    remember(memory, gathered.files, gathered.origins, report.checks, chosen.cases)
    failures = written(reports, report)  # before stdout, which may be a closed pipe
    notes = brought_up_to_date(baseline, report, failures) if baseline else ()
    missing = summarised(report, os.environ)
    if missing:
        out.say(missing)
    if report.crashed or any(check.faults for check in report.checks):
        from gradverify.cli.bug import bug_reports

        for bug in bug_reports(report):
            out.say(bug)
    text = (
        jsonl.last_line(report)
        if options.format == "jsonl"
        else report.to_json()
        if settled.for_programs
        else closing(report, settled.look)
    )
    if options.format in (None, "table", "plain") and not options.quiet and named.kept:
        text += f"\n{named.kept}"
    out.write(text, annotated(report) if is_read_on_github(options.format, os.environ) else "")
    for note in notes:
        out.say(note)
    if failures:
        raise NotWritten("\n".join(failures))
    # A commit that affects no check, or only checks that cannot run
    may_be_empty = options.changes is not None and not chosen.left_out
    return OK if report.exit_code == NOTHING_CHECKED and may_be_empty else report.exit_code


# ---- Selection
def choose(gathered: Gathered, settled: Settled, memory: Memory) -> Chosen:
    """Select the cases: those affected by changes; of these by keyword and tag; of these the ones
    that failed last time; of these one shard. Raises ProblemsError for an invalid expression, and
    if git cannot determine the changes."""
    from gradverify.running.affected import since
    from gradverify.running.memory import recall
    from gradverify.running.select import part, select

    options, concerned, notes = settled.options, gathered.cases, list[str | None]()
    changes: Changes | None = (
        options.changes if options.changed_from is None else since(options.changed_from, Path.cwd())
    )
    if changes is not None:
        concerned, why = _affected(gathered, changes, options)
        notes += why
    named = select(concerned, keyword=options.keyword, tags=options.tags)
    notes.insert(
        0,
        gathered.message
        or (None if named else nothing_selected(concerned, options.keyword, options.tags)),
    )
    notes += others(gathered) if options.verbose else ()
    whole = named
    if options.last_failed and named:
        failed = recall(memory, gathered.files, gathered.origins)
        again = tuple(case for case in named if memory.key(case.id) in failed)
        notes.append(
            None
            if again
            else "--lf: none of the selected checks is remembered as failed, so all of them run"
        )
        whole = again or named
    shard, cases = None, whole
    if "shard" in settled.values:
        index, count = settled.values["shard"]
        cases = tuple(case for case in whole if part(case.id, count) == index)
        shard = Shard(index, count, len(whole))
    selection = Selection(
        tuple(options.paths or ()),
        options.keyword,
        options.tags,
        gathered.written - len(whole),
        shard,
        len(gathered.left_out),
    )
    return Chosen(cases, selection, tuple(filter(None, notes)), bool(concerned) and not named)


def _affected(
    gathered: Gathered, changes: Changes, options: Options
) -> tuple[tuple[Case, ...], list[str]]:
    """Return the affected cases, and notes with their number and, with `-v`, the reasons. For a
    hook without the total, as it has not read all specs."""
    from gradverify.running.affected import WHOLE, affected

    found = affected(changes, Path.cwd(), [file.as_posix() for file in gathered.files])
    cases = gathered.cases
    reasons = (
        (case, found.get((case.spec.path, case.spec.line)) or found.get((case.spec.path, WHOLE)))
        for case in cases
    )
    why = {case.id: reason for case, reason in reasons if reason}
    count = len(why)
    checks = (
        f"{count or 'none'} of {counted(len(cases), 'check')}"
        if options.changed_from
        else counted(count, "check")
        if count
        else "no check"
    )
    notes = (
        [
            f"{checks} {'is' if count <= 1 else 'are'} affected by "
            f"{counted(changes.count, 'changed file')}"
        ]
        if cases
        else []
    )
    if options.verbose:
        notes += [f"affected: {id}: {reason}" for id, reason in why.items()][:REASONS]
        notes += [f"affected: {count - REASONS} more"] if count > REASONS else []
    return tuple(case for case in cases if case.id in why), notes


# ---- The run
def _crew(settled: Settled, planned: Planned, signals: Signals | None) -> Crew:
    from gradverify.running.schedule import Here, Workers

    if settled.options.no_isolate:
        return Here(planned)
    given = settled.values
    return Workers(given.get("jobs", 1), given.get("timeout"), planned=planned, signals=signals)


def _writer(
    cases: Sequence[Case], gathered: Gathered, settled: Settled, gate: Gate, out: Output
) -> Callable[[Event], None]:
    """Return the function called with each event: it prints the line of a result, or for JSON Lines
    that of any event."""
    from gradverify import __version__
    from gradverify.report import jsonl
    from gradverify.report.terminal.line import name_width
    from gradverify.report.terminal.view import check_line

    if settled.options.format == "jsonl":
        return lambda event: out.write(jsonl.line(event, gate, __version__))
    column, shown = name_width(case.name for case in cases), set[Hashable]()

    def write(event: Event) -> None:
        if isinstance(event, CheckFinished) and not settled.for_programs:
            result = judged(event.result, gate)
            origins = gathered.origins.get(result.id)
            out.write(check_line(result, settled.look, column, origins, shown))

    return write


def followed(
    events: Iterable[Event], progress: Progress, write: Callable[[Event], None]
) -> list[Event]:
    """Return all events; after Ctrl-C, those until then and the end of the run. `write` is called
    with each as it occurs."""
    seen: list[Event] = []
    try:
        progress.wait("starting torch")
        for event in events:
            progress.clear()
            write(event)
            if isinstance(event, RunStarted):
                progress.begin(event.total)
            elif isinstance(event, CheckStarted):
                progress.show(event.name)
            elif isinstance(event, CheckFinished):
                progress.ended(event.result.name)
            seen.append(event)
    except KeyboardInterrupt:
        if not seen:
            raise
        seen.append(RunFinished(0.0, INTERRUPTED))
    finally:
        progress.clear()
    return seen
