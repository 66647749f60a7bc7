"""The result of a case whose process ended, or was ended, before it had one: GV004 and GV005."""

from __future__ import annotations

import linecache
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gradverify.model.case import Case
from gradverify.model.paths import shown_path
from gradverify.model.result import CaseResult, Finding, Frame
from gradverify.report.numbers import limit as limit_of
from gradverify.running.supervisor import MOST, Lost
from gradverify.running.unrun import GARBLED, decoded, without_running

_LINE = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_PACKAGE = f"{Path(__file__).resolve().parent.parent}/"
_BUILTINS = f"{_PACKAGE}functions/"      # what a spec may name is checked like anybody's code
_STANDARD = f"{Path(linecache.__file__).parent}/"
FRAMES = 8
OUT_OF_MEMORY = "the system ends a process so where memory runs out"
COMPARING = "it was comparing, and not calling the function: check a smaller input, or compare less (`mode: rows`, `mode: blocks`)"
SIGNAL_HINTS = {"SIGSEGV": "native code read or wrote where it must not: an index, a stride, a size or a freed tensor",
                "SIGABRT": "native code gave up: an assertion, or memory freed twice",
                "SIGKILL": f"{OUT_OF_MEMORY}: check a smaller input, or run fewer checks at a time (`-j`)",
                "SIGFPE": "native code divided an integer by zero",
                "SIGILL": "native code was compiled for another processor"}


def of_lost(case: Case, lost: Lost) -> CaseResult:
    """Verdict error, whatever status its process ended with; but a failure that the check had sent before is one."""
    finding = _timed_out(lost) if lost.died.how == "limit" else _crashed(lost)
    finding = replace(finding, frames=tuple(_frames(lost.died.stack)))
    found = None if lost.partial is None else decoded(case, lost.partial)
    if found is not None and found.verdict == "fail":      # what was found stands
        return replace(found, reason=finding.message, captured=lost.died.printed)
    return replace(without_running(case, "error", finding.message), findings=(finding,), captured=lost.died.printed)


def _timed_out(lost: Lost) -> Finding:
    limit = limit_of(lost.died.number)
    if lost.while_loading:
        return Finding("GV005", f"importing and building what the check names did not end within {limit}", "timed-out",
                       hint="run the import by itself; `--import-timeout` gives it longer")
    longer = "`timeout` in the check, or `--timeout`, gives it longer"
    if _compares(lost.died.stack):
        return Finding("GV005", f"the check did not end within {limit}", "timed-out", hint=f"{COMPARING}; {longer}")
    return Finding("GV005", f"the check did not end within {limit}", "timed-out", hint=longer)


def _crashed(lost: Lost) -> Finding:
    died, hint = lost.died, None
    while_ = " while it was imported" if lost.while_loading else ""
    if died.how == "signal":
        number = int(died.number)
        hint = SIGNAL_HINTS.get(signal.Signals(number).name) if number in signal.Signals._value2member_map_ else None
        message = f"the process of this check was ended{while_} by {_name(number)}"
    elif died.how == "status":
        message = f"the process of this check ended{while_} with status {int(died.number)} before there was a result"
        hint = "the code, or a library that it calls, ended the process itself (exit, _exit, exec): what it checked is not known"
    elif died.how == "processes":
        message = f"this check had started {int(died.number)} processes{while_} that ran at the same time, and was ended: no more than {MOST} may"
        hint = "code that forks and does not end the child forks in the child too"
    elif died.how in ("server", "parent"):
        by = f" by {_name(int(died.number))}" if died.number else ""
        while_ = "was imported" if lost.while_loading else "ran"
        message = f"the process that all checks are started from was ended{by} while this check {while_}, and again when it ran alone"
        hint = f"the code ends its parent process (`os.kill(os.getppid(), …)`), or memory ran out: {OUT_OF_MEMORY}"
    elif died.how == "garbled":
        message, hint = f"the process of this check wrote{while_} into the pipe that its result goes through", GARBLED
    else:
        message = f"the process of this check went on{while_} but closed the pipe that its result goes through"
    return Finding("GV004", message, "crashed", hint=hint)


def _name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _compares(stack: str) -> bool:
    """Was the innermost line one of the comparison of numbers, which calls nothing of the user's?"""
    return any(match["file"].startswith(f"{_PACKAGE}numerics/") for match in list(_LINE.finditer(_of_thread(stack)))[:1])


def _of_thread(stack: str) -> str:
    """The part of the thread that ran."""
    threads = re.split(r"\n(?=(?:Current )?[Tt]hread 0x)", stack)
    return next((thread for thread in threads if thread.lstrip().startswith(("Current thread", "Fatal")) and "File" in thread), threads[0])


def _frames(stack: str) -> Iterator[Frame]:
    """The user's frames of the thread that ran, innermost last, of a stack as faulthandler writes it (innermost first)."""
    found = [match for match in _LINE.finditer(_of_thread(stack)) if not _is_ours(match["file"])]
    for match in reversed(found[:FRAMES]):
        line = int(match["line"])
        yield Frame(shown_path(match["file"]), line, match["function"], linecache.getline(match["file"], line).strip())


def _is_ours(file: str) -> bool:
    if file.startswith(_BUILTINS):
        return False
    installed = "/site-packages/" in file
    return file.startswith((_PACKAGE, "<")) or (file.startswith(_STANDARD) and not installed) or "/site-packages/torch/" in file
