"""`gradverify hook`: for pre-commit and its like. The checks that changed files affect; nothing heavy is imported where there are none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from gradverify.cli import options as o
from gradverify.cli import unaffected
from gradverify.cli.output import Output
from gradverify.model.problem import Problem, ProblemsError

if TYPE_CHECKING:
    from gradverify.cli.asked import Asked


def hook(
    ctx: typer.Context, files: o.Files = None,
    keyword: o.Keyword = None, tags: o.Tags = None, exitfirst: o.ExitFirst = False, maxfail: o.MaxFail = None,
    jobs: o.Jobs = None, timeout: o.Timeout = None, import_timeout: o.ImportTimeout = None, memory: o.Memory = None,
    undecided: o.Undecided = None, fail_on_skip: o.FailOnSkip = None, require_device: o.RequireDevice = None,
    format: o.CheckFormat = None, report: o.Reports = None, max_rows: o.MaxRows = None, verbose: o.Verbose = 0, quiet: o.Quiet = False,
    color: o.Color = "auto", width: o.Width = None, no_progress: o.NoProgress = False,
) -> int:
    """Run the checks that changed files affect, for pre-commit. Exits with 0 if there are none. Options and `--` come before the files."""
    if "--" not in ctx.obj.arguments:
        _refuse_options(files or ())
    options = {name: value for name, value in ctx.params.items() if name != "files"}
    return run_hook(tuple(files or ()), options, ctx.obj)


def _refuse_options(files: Sequence[str]) -> None:
    """Raise ProblemsError for a word behind the first file that looks like an option."""
    found = next((file for file in files if file.startswith("-")), None)
    if found is not None:
        raise ProblemsError([Problem(f"{found!r} follows a file: options come before the files, and `--` between them and files of such names")])


def run_hook(files: tuple[str, ...], options: dict[str, Any], out: Output) -> int:
    """Run the hook."""
    from gradverify.cli.asked import Asked
    from gradverify.model.problem import OK

    changes, found = unaffected.asked(files)
    asked = Asked(paths=found.specs, changes=changes, **options)
    if not found.specs:
        _refused_now(asked, out)
        out.say(unaffected.sentence(changes, found))
        return OK
    from gradverify.cli.check import run_check

    return run_check(asked, out)


def _refused_now(asked: Asked, out: Output) -> None:
    """Report wrong options at the first commit, also if no check is affected."""
    from gradverify.cli.asked import CHECK_FORMATS, settle
    from gradverify.cli.configured import configured, project_here
    from gradverify.rules.catalogue import codes

    settle(configured(asked, project_here()), codes(), out, os.environ, CHECK_FORMATS)
