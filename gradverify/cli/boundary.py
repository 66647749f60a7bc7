"""The only place that exits: outcomes and exceptions become exit codes, and a fault of ours becomes
a bug report."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from gradverify.cli.output import NotWritten, Output, ReaderGone, open_streams
from gradverify.model.problem import INTERNAL, INTERRUPTED, OK, USAGE, ProblemsError

CLOSED_PIPE = 141
"""128 + SIGPIPE: what a shell shows for any program whose reader went away."""


def main() -> NoReturn:
    """The console script."""
    open_streams()
    code = run(Output(sys.argv[1:]))
    if "multiprocessing.forkserver" in sys.modules:
        from gradverify.running.server import end

        end()
    sys.exit(code)


def run(out: Output) -> int:
    """The exit code of one command line, `out.arguments`. Nothing escapes."""
    try:
        if not _has_folder():
            out.say("the current folder does not exist any more: change to one that does")
            return USAGE
        _refuse_words(out.arguments)
        return _command(out)
    except ProblemsError as error:
        out.problems(error.problems)
        return USAGE
    except ReaderGone:
        return CLOSED_PIPE
    except NotWritten as error:
        for failure in dict.fromkeys((out.failure or str(error), str(error))):
            out.say(failure)
        return INTERNAL
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as error:
        return _of_exit(error)
    except BaseException as error:
        from gradverify.cli.bug import bug_report, last_frames  # what only a fault needs
        from gradverify.running.server import is_lack, lacking

        short = lacking(error) if is_lack(error) else None
        if short is not None:
            out.say(short)
            return USAGE
        out.say(bug_report(last_frames(error), out.arguments))
        return INTERNAL


def _has_folder() -> bool:
    """Is there a folder that relative paths start from?"""
    try:
        return bool(os.getcwd())  # noqa: PTH109 - as plain as can be, before anything else
    except OSError:
        return False


def _refuse_words(arguments: Sequence[str]) -> None:
    """Raise ProblemsError for an option that is the name of a file as well: whoever passes files on
    may have meant that."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    found = next((word for word in options if word.startswith("-") and os.path.lexists(word)), None)
    if found is not None:
        raise ProblemsError(
            f"{found!r} is an option, and a file here: write `--` before files that are "
            "named like options"
        )


def _command(out: Output) -> int:
    """Commands return their code; typer's own errors (usage) and exits (--help) come as values too,
    in every version it supports."""
    if out.arguments[:1] == ("hook",):
        from gradverify.cli.unaffected import passed

        if passed(out):
            return OK
    from gradverify.cli.app import command

    try:
        code = command(out.arguments).main(
            args=list(out.arguments), prog_name="gradverify", standalone_mode=False, obj=out
        )
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            message = io.StringIO()
            error.show(file=message)
            out.say(message.getvalue().rstrip())
            return USAGE
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        if isinstance(error, OSError) and out.arguments[:1] == ("--install-completion",):
            raise NotWritten(
                f"the completion was not installed: {error.filename or 'its file'}: "
                f"{error.strerror or error}"
            ) from None
        raise
    out.write("")
    if out.failure:
        raise NotWritten(out.failure)
    return code if isinstance(code, int) else OK


def _of_exit(error: SystemExit) -> int:
    """Only typer and rich raise it here, with 1, when the reader of `--help` went away."""
    if error.code in (None, 0):
        return OK
    return CLOSED_PIPE if error.code == 1 else USAGE
