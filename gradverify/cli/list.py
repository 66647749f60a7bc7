"""`gradverify list` and `validate`: what would run, and every problem of every spec; nothing is run or imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gradverify.cli.asked import Asked, command, shown_as
from gradverify.cli.gather import nothing_selected
from gradverify.cli.output import Output
from gradverify.model.case import Case
from gradverify.model.problem import NOTHING_CHECKED, OK, USAGE
from gradverify.report.look import Look
from gradverify.report.names import clean
from gradverify.report.numbers import counted


@command("paths", "functions", "keyword", "tags", "format", "width", "color")
def list_command(asked: Asked, out: Output) -> int:
    """List checks with their tags, device and input sizes; with --functions, the built-in functions."""
    shown = shown_as(out, asked)
    if asked.functions:
        return list_functions(shown, asked.format == "json", out)
    return list_cases(asked.paths or [], asked.keyword, asked.tags, shown, asked.format == "json", out)


def list_functions(shown: Look, as_json: bool, out: Output) -> int:
    from gradverify.functions.catalogue import BUILTINS
    from gradverify.report.listing import functions_json, functions_text

    rows = [(builtin.name, builtin.parameters, builtin.summary) for builtin in BUILTINS.values()]
    out.write(functions_json(rows) if as_json else functions_text(rows, shown))
    return OK


def list_cases(paths: Sequence[str], keyword: str | None, tags: str | None, shown: Look, as_json: bool, out: Output) -> int:
    from gradverify.cli.gather import gather, sound
    from gradverify.report.listing import cases_json, cases_text
    from gradverify.running.select import select

    gathered = sound(gather(paths))
    cases = select(gathered.cases, keyword=keyword, tags=tags)
    message = gathered.message or (None if cases else nothing_selected(gathered.cases, keyword, tags))
    if message:
        out.say(message)
    out.write(cases_json(cases, gathered.names) if as_json else cases_text(cases, shown, gathered.names) if cases else "")
    return OK if cases else NOTHING_CHECKED


@command("paths")
def validate_command(asked: Asked, out: Output) -> int:
    """Report all mistakes in specs. Runs and imports nothing."""
    from gradverify.cli.gather import gather, others

    gathered = gather(asked.paths or ())
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
