"""The only place that exits: turn outcomes and exceptions into exit codes, and internal errors into
bug reports."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from gradverify.cli.output import NotWritten, Output, ReaderGone, open_streams
from gradverify.model.problem import INTERNAL, INTERRUPTED, OK, USAGE, ProblemsError

CLOSED_PIPE = 141
"""128 + SIGPIPE: the status of any program whose output pipe was closed, as a shell shows it."""


def main() -> NoReturn:
    """Run the console script."""
    open_streams()
    code = run(Output(sys.argv[1:]))
    if "multiprocessing.forkserver" in sys.modules:
        from gradverify.running.server import end

        end()
    sys.exit(code)


def run(out: Output) -> int:
    """Run the command line `out.arguments` and return its exit code. No exception is raised."""
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
        from gradverify.cli.bug import bug_report, last_frames  # needed only for an internal error
        from gradverify.running.server import is_lack, lacking

        short = lacking(error) if is_lack(error) else None
        if short is not None:
            out.say(short)
            return USAGE
        out.say(bug_report(last_frames(error), out.arguments))
        return INTERNAL


def _has_folder() -> bool:
    """Return whether the current folder exists."""
    try:
        return bool(os.getcwd())  # noqa: PTH109 - a plain call, before anything else
    except OSError:
        return False


def _refuse_words(arguments: Sequence[str]) -> None:
    """Raise ProblemsError for an option that is also the name of a file, which a script that passes
    files may mean."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    found = next((word for word in options if word.startswith("-") and os.path.lexists(word)), None)
    if found is not None:
        raise ProblemsError(
            f"{found!r} is an option, and a file here: write `--` before files that are "
            "named like options"
        )


def _command(out: Output) -> int:
    """Run the command and return its exit code, also for typer's errors (usage) and exits (--help),
    in all supported versions of typer."""
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
    """Return the exit code of a SystemExit. Only typer and rich raise one here, with 1 if the
    reader of `--help` closed the pipe."""
    if error.code in (None, 0):
        return OK
    return CLOSED_PIPE if error.code == 1 else USAGE
