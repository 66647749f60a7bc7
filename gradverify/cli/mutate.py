"""`gradverify mutate`: damage gradients on purpose, to find out which errors the specs do not
detect."""

from __future__ import annotations

import time
from dataclasses import replace

from gradverify.cli.gather import gather, selected, shown_target, sound, with_torch
from gradverify.cli.options import SETTINGS, Options, command, settle
from gradverify.cli.output import Output
from gradverify.model.codec import as_text
from gradverify.model.mutation import MutatedCheck


@command(
    "paths",
    *SETTINGS,
    "select",
    "ignore",
    "keyword",
    "tags",
    "fail_under",
    "format",
    "quiet",
    "color",
    "width",
    "no_progress",
)
def mutate_command(options: Options, out: Output) -> int:
    """Put typical mistakes into the gradients, and report which of them the checks do not find."""
    from gradverify import __version__
    from gradverify.cli.progress import Progress
    from gradverify.model.mutation import report
    from gradverify.report.listing import mutation_line, mutation_text
    from gradverify.running.inline import mutated

    settled = settle(options, out)
    gathered = sound(gather(options.paths or (), settled.settings))
    cases = selected(gathered, options.keyword, options.tags, out.say)
    with_torch(cases)
    if settled.for_programs:
        out.keep_stdout()
    started, checks, interrupted = time.perf_counter(), list[MutatedCheck](), False
    progress = Progress(out.stderr_copy() if settled.watched else None)
    progress.begin(len(cases))
    try:
        progress.wait("starting torch")
        for check in mutated(cases, lambda case: progress.show(case.name)):
            progress.clear()
            checks.append(replace(check, function=shown_target(check.function)))
            if not settled.for_programs and settled.look.verbosity >= 0:
                out.write(mutation_line(checks[-1], settled.look))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.clear()
    found = report(
        checks,
        version=__version__,
        argv=out.arguments,
        duration=time.perf_counter() - started,
        fail_under=options.fail_under,
        interrupted=interrupted,
    )
    out.write(as_text(found) if settled.for_programs else mutation_text(found, settled.look))
    return found.exit_code
