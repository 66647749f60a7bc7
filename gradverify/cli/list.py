"""`gradverify list` and `validate`: list the checks that would run, and all problems of the specs,
without running or importing anything."""

from __future__ import annotations

from dataclasses import replace

from gradverify.cli.gather import gather, others, selected, shown_target, sound
from gradverify.cli.options import Options, command, settle
from gradverify.cli.output import Output
from gradverify.model.problem import NOTHING_CHECKED, OK, USAGE
from gradverify.report.names import clean
from gradverify.report.numbers import counted


@command("paths", "functions", "keyword", "tags", "format", "width", "color")
def list_command(options: Options, out: Output) -> int:
    """List checks with their tags, device and input sizes; with --functions, the built-in
    functions."""
    from gradverify.functions.catalogue import BUILTINS
    from gradverify.report.listing import cases_json, cases_text, functions_json, functions_text

    settled = settle(options, out)
    if options.functions:
        rows = [
            (builtin.name, builtin.parameters, builtin.summary) for builtin in BUILTINS.values()
        ]
        out.write(
            functions_json(rows) if settled.for_programs else functions_text(rows, settled.look)
        )
        return OK
    gathered = sound(gather(options.paths or ()))
    cases = [
        replace(
            case,
            target=shown_target(case.target),
            inputs_from=case.inputs_from and shown_target(case.inputs_from),
        )
        for case in selected(gathered, options.keyword, options.tags, out.say)
    ]
    out.write(
        cases_json(cases)
        if settled.for_programs
        else cases_text(cases, settled.look)
        if cases
        else ""
    )
    return OK if cases else NOTHING_CHECKED


@command("paths")
def validate_command(options: Options, out: Output) -> int:
    """Report all mistakes in specs. Runs and imports nothing."""
    from gradverify.source.globs import any_file

    gathered = gather(options.paths or ())
    count = f"{counted(len(gathered.files), 'spec')}, {counted(gathered.written, 'check')}"
    if gathered.problems:
        out.write("".join(f"{clean(str(problem))}\n" for problem in gathered.problems))
        out.write(f"{count}: {counted(len(gathered.problems), 'problem')}\n")
        return USAGE
    if not gathered.files:
        out.say(gathered.message or "no spec was found")
        return NOTHING_CHECKED
    # Most often a mistake, but no error: files that globs of `sources` match may be built elsewhere
    empty = [
        (
            f"{case.spec.path}:{case.spec.line}: sources: {pattern!r} stands for no file (relative "
            "to the spec)"
        )
        for case in gathered.cases
        for pattern in case.sources
        if not any_file(pattern, case.search.folder)
    ]
    for sentence in dict.fromkeys((*others(gathered), *empty)):
        out.say(sentence)
    left = (
        f", {counted(len(gathered.left_out), 'other file')} left out" if gathered.left_out else ""
    )
    out.write(f"{count}: valid{left}\n")
    return OK
