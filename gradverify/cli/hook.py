"""`gradverify hook`: for pre-commit and its like. The checks that changed files affect; nothing heavy is imported where there are none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from gradverify.cli import unaffected
from gradverify.cli.asked import CHECK_FORMAT, CHECK_FORMATS, FILES, Asked, command, configured, settle
from gradverify.cli.output import Output
from gradverify.model.problem import OK, Problem, ProblemsError


@command("paths", "keyword", "tags", "exitfirst", "maxfail", "jobs", "timeout", "import_timeout", "memory", "undecided", "fail_on_skip",
         "require_device", "format", "report", "max_rows", "verbose", "quiet", "color", "width", "no_progress", paths=FILES, format=CHECK_FORMAT)
def hook_command(asked: Asked, out: Output) -> int:
    """Run the checks that changed files affect, for pre-commit. Exits with 0 if there are none. Options and `--` come before the files."""
    files = tuple(asked.paths or ())
    if "--" not in out.arguments:
        _refuse_options(files)
    changes, found = unaffected.asked(files)
    asked = replace(asked, paths=list(found.specs), changes=changes)
    if not found.specs:
        _refused_now(asked, out)
        out.say(unaffected.sentence(changes, found))
        return OK
    from gradverify.cli.check import run_check

    return run_check(asked, out)


def _refuse_options(files: Sequence[str]) -> None:
    """Raise ProblemsError for a word behind the first file that looks like an option."""
    found = next((file for file in files if file.startswith("-")), None)
    if found is not None:
        raise ProblemsError([Problem(f"{found!r} follows a file: options come before the files, and `--` between them and files of such names")])


def _refused_now(asked: Asked, out: Output) -> None:
    """Report wrong options at the first commit, also if no check is affected."""
    from gradverify.cli.gather import project_here
    from gradverify.rules.catalogue import codes

    settle(configured(asked, project_here()), codes(), out, os.environ, CHECK_FORMATS)
