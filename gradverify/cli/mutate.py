"""`gradverify mutate`: gradients damaged on purpose, to learn which damage the specs would have let through."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from gradverify.cli.asked import SETTINGS, Asked, Settled, command, settle
from gradverify.cli.check import refuse
from gradverify.cli.gather import Gathered, gather, nothing_selected, with_torch
from gradverify.cli.output import Output
from gradverify.model.case import Case
from gradverify.model.codec import as_text
from gradverify.model.mutation import MutatedCheck


@command("paths", *SETTINGS, "select", "ignore", "keyword", "tags", "fail_under", "format", "quiet", "color", "width", "no_progress")
def mutate_command(asked: Asked, out: Output) -> int:
    """Put typical mistakes into the gradients, and report which of them the checks do not find."""
    from gradverify.rules.catalogue import codes
    from gradverify.running.select import select

    settled = settle(asked, codes(), out, os.environ)
    gathered = gather(asked.paths or (), settled.said)
    if gathered.problems:
        return refuse(gathered, out)
    cases = select(gathered.cases, keyword=asked.keyword, tags=asked.tags)
    message = gathered.message or (None if cases else nothing_selected(gathered.cases, asked.keyword, asked.tags))
    if message:
        out.say(message)
    with_torch(cases)
    return _run(cases, gathered, settled, asked.fail_under, out)


def _run(cases: Sequence[Case], gathered: Gathered, settled: Settled, fail_under: float, out: Output) -> int:
    from gradverify import __version__
    from gradverify.model.mutation import report
    from gradverify.report.listing import mutation_text

    if settled.as_json:
        out.keep_stdout()
    started, checks = time.perf_counter(), list[MutatedCheck]()
    interrupted = _collect(cases, gathered, settled, out, checks)
    found = report(checks, version=__version__, argv=out.arguments, duration=time.perf_counter() - started, fail_under=fail_under,
                   interrupted=interrupted)
    out.write(as_text(found) if settled.as_json else mutation_text(found, settled.look))
    return found.exit_code


def _collect(cases: Sequence[Case], gathered: Gathered, settled: Settled, out: Output, checks: list[MutatedCheck]) -> bool:
    """Fills `checks` as they end, and shows their lines. Was it interrupted?"""
    from gradverify.cli.progress import Progress
    from gradverify.report.listing import mutation_line
    from gradverify.running.mutate import mutated

    progress = Progress(out.beside_stderr() if settled.progress else None)
    progress.begin(len(cases))
    try:
        progress.wait("starting torch")
        for check in mutated(cases, lambda case: progress.show(case.name)):
            progress.clear()
            checks.append(replace(check, function=gathered.names.get(check.function, check.function)))
            if not settled.as_json and settled.look.verbosity >= 0:
                out.write(mutation_line(checks[-1], settled.look))
    except KeyboardInterrupt:
        return True
    finally:
        progress.clear()
    return False
