"""`gradverify validate`: every problem of every spec, without importing torch or anybody's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import typer

from gradverify.cli import options as o
from gradverify.cli.output import Output
from gradverify.model.case import Case
from gradverify.model.problem import NOTHING_CHECKED, OK, USAGE
from gradverify.report.names import clean
from gradverify.report.numbers import counted


def validate(ctx: typer.Context, paths: o.Paths = None) -> int:
    """Report all mistakes in specs. Runs and imports nothing."""
    return run_validate(paths or (), ctx.obj)


def run_validate(paths: list[str] | tuple[str, ...], out: Output) -> int:
    from gradverify.cli.gather import gather, others

    gathered = gather(paths)
    count = f"{counted(len(gathered.files), 'spec')}, {counted(gathered.written, 'check')}"
    if gathered.problems:
        out.write("".join(f"{clean(str(problem))}\n" for problem in gathered.problems))
        out.write(f"{count}: {counted(len(gathered.problems), 'problem')}\n")
        return USAGE
    if not gathered.files:
        out.say(gathered.message or "no spec was found")
        return NOTHING_CHECKED
    for sentence in dict.fromkeys((*others(gathered), *_without_file(gathered.cases))):
        out.say(sentence)
    left = f", {counted(len(gathered.left_out), 'other file')} left out" if gathered.left_out else ""
    out.write(f"{count}: valid{left}\n")
    return OK


def _without_file(cases: Iterable[Case]) -> Iterator[str]:
    """Globs of `sources` that stand for nothing: no error, because what they stand for may be built elsewhere, but most often a slip."""
    from gradverify.source.globs import any_file

    for case in cases:
        for pattern in case.sources:
            if not any_file(pattern, case.search.folder):
                yield f"{case.spec.path}:{case.spec.line}: sources: {pattern!r} stands for no file (relative to the spec)"
