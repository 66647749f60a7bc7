"""`gradverify hook`, for pre-commit and similar tools: run the checks that changed files affect. If
there are none, nothing heavy is imported."""

from __future__ import annotations

from gradverify.cli import unaffected
from gradverify.cli.options import CHECK_FORMAT, Option, Options, command, configured, settle
from gradverify.cli.output import Output
from gradverify.model.problem import OK, ProblemsError

FILES = Option("", "FILES", "The changed files, deleted ones too.", many=True)


@command(
    "paths",
    "keyword",
    "tags",
    "exitfirst",
    "maxfail",
    "jobs",
    "timeout",
    "undecided",
    "fail_on_skip",
    "require_device",
    "format",
    "report",
    "max_rows",
    "verbose",
    "quiet",
    "color",
    "width",
    "no_progress",
    paths=FILES,
    format=CHECK_FORMAT,
)
def hook_command(options: Options, out: Output) -> int:
    """Run the checks that changed files affect, for pre-commit. Exits with 0 if there are none.
    Options and `--` come before the files."""
    files = tuple(options.paths or ())
    late = next((file for file in files if file.startswith("-")), None)
    if late is not None and "--" not in out.arguments:
        raise ProblemsError(
            f"{late!r} follows a file: options come before the files, and `--` between "
            "them and files of such names"
        )
    changes, specs, total = unaffected.affected_by(files)
    for each in unaffected.unchecked(changes):
        out.say(each)
    if not specs:
        from gradverify.cli.gather import project_here

        # Invalid options are reported at the first commit, even if no check is affected
        settle(configured(options, project_here()), out)
        out.say(unaffected.sentence(changes, total))
        return OK
    from gradverify.cli.check import run_check

    return run_check(options.but(paths=list(specs), changes=changes), out)
