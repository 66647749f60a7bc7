"""The only place that exits: outcomes and exceptions become exit codes, and a fault of ours becomes a bug report."""

from __future__ import annotations

import sys
from typing import NoReturn

from gradverify.cli.bug import bug_report, last_frames
from gradverify.cli.output import NotWritten, Output, ReaderGone, open_streams
from gradverify.model.problem import ProblemsError
from gradverify.model.report import INTERNAL, INTERRUPTED, OK, USAGE

CLOSED_PIPE = 141
"""128 + SIGPIPE: what a shell shows for any program whose reader went away."""


def main() -> NoReturn:
    """The console script."""
    open_streams()
    sys.exit(run(Output(sys.argv[1:])))


def run(out: Output) -> int:
    """The exit code of one command line, `out.arguments`. Nothing escapes."""
    try:
        return _command(out)
    except ProblemsError as error:
        out.problems(error.problems)
        return USAGE
    except ReaderGone:
        return CLOSED_PIPE
    except NotWritten as error:
        out.say(str(error))
        return INTERNAL
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as error:
        return _of_exit(error)
    except BaseException as error:
        out.say(bug_report(last_frames(error), out.arguments))
        return INTERNAL


def _command(out: Output) -> int:
    """Commands return their code; typer's own errors (usage) and exits (--help) come as values too, in every version it supports."""
    from gradverify.cli.app import command

    try:
        code = command().main(args=list(out.arguments), prog_name="gradverify", standalone_mode=False, obj=out)
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show(file=out.stderr)
            return USAGE
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        raise
    out.write("")
    return code if isinstance(code, int) else OK


def _of_exit(error: SystemExit) -> int:
    """Only typer and rich raise it here, with 1, when the reader of `--help` went away."""
    if error.code in (None, 0):
        return OK
    return CLOSED_PIPE if error.code == 1 else USAGE
