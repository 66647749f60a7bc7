"""Results of cases that did not run, or whose process ended or was killed without a result (GV004,
GV005), and of those that cannot be judged after the run."""

from __future__ import annotations

import linecache
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from json import dumps, loads  # checked code may replace them in their module
from pathlib import Path

from gradverify.model.case import Case, Json
from gradverify.model.codec import from_json, to_json
from gradverify.model.fault import fault_of, legible, of_fault
from gradverify.model.paths import shown_path
from gradverify.model.result import CaseResult, Finding, Frame, Verdict, blank, unjudged
from gradverify.report.numbers import limit as limit_of
from gradverify.running.supervisor import MOST, Lost

# ---- The result of a case that was not run, or that returned no valid result
GARBLED = (
    "code that ran there replaced what results go through, or writes to file descriptors that are "
    "not its own"
)


def without_running(
    case: Case, verdict: Verdict, reason: str, missing: str | None = None
) -> CaseResult:
    """Return the result of a case that was not run. `missing`: the kind of device that the machine
    lacks."""
    return replace(blank(case), verdict=verdict, reason=reason, missing=missing)


def faulty(case: Case, error: BaseException) -> CaseResult:
    """Return the result of a case that ended with an internal error of gradverify."""
    return of_fault(blank(case), fault_of(error, "the check"))


def encoded(case: Case, result: CaseResult) -> Json:
    """Return a result as plain data. A result that cannot be encoded, or read again, is an internal
    error of this check only."""
    try:
        data = to_json(result)
        _read(data)
        return data
    except Exception as error:
        return to_json(faulty(case, error))


def decoded(case: Case, data: Json) -> CaseResult:
    """Return the result that `encoded` made. Data that is no result of this case was written by
    checked code, and gives GV004."""
    try:
        result = _read(data)
    except Exception:
        return _garbled(case, "no result")
    if (result.id, result.spec, result.seed) != (case.id, case.spec, case.settings.seed):
        return _garbled(case, f"the result of another check, {legible(result.id)}")
    if result.verdict == "pass" and result.errors:
        return _garbled(case, f"a pass with the error {legible(result.errors[0].code)}")
    return result


def _read(data: Json) -> CaseResult:
    """Read a result. Raises ValueError if a value has another type than declared, as True for 1; an
    int is accepted for a float."""
    result = from_json(CaseResult, data)
    sent, read = (repr(loads(dumps(each), parse_int=float)) for each in (data, to_json(result)))
    if sent != read:
        raise ValueError("a field of the result is of another type than it says")
    return result


def _garbled(case: Case, what: str) -> CaseResult:
    finding = Finding(
        "GV004", f"what the process of this check sent back is {what}", name="crashed", hint=GARBLED
    )
    return unjudged(blank(case), finding)


# ---- The result of a case whose process ended, or was killed, without a result: GV004 and GV005
_LINE = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_PACKAGE = f"{Path(__file__).resolve().parent.parent}/"
_BUILTINS = f"{_PACKAGE}functions/"  # checked like user code where a spec names it
_STANDARD = f"{Path(linecache.__file__).parent}/"
FRAMES = 8
OUT_OF_MEMORY = "the system ends a process so where memory runs out"
LONGER = (
    "`timeout` in the check, or `--timeout`, gives it longer; a smaller input, or `mode: blocks`, "
    "takes less"
)
SIGNAL_HINTS = {
    "SIGSEGV": "native code read or wrote where it must not: an index, a stride, a size or a freed "
    "tensor",
    "SIGABRT": "native code gave up: an assertion, or memory freed twice",
    "SIGKILL": f"{OUT_OF_MEMORY}: check a smaller input, or run fewer checks at a time (`-j`)",
    "SIGFPE": "native code divided an integer by zero",
    "SIGILL": "native code was compiled for another processor",
}


def of_lost(case: Case, lost: Lost, found: Json = None) -> CaseResult:
    """Return the result of a lost case: verdict error, whatever the exit status, or the failure
    that the check had `found` before."""
    finding = _timed_out(lost) if lost.died.how == "limit" else _crashed(lost)
    finding = replace(finding, frames=tuple(_frames(lost.died.stack)))
    before = without_running(case, "error", finding.message)
    if found is not None and (known := decoded(case, found)).verdict == "fail":
        before = known
    return replace(before, findings=(*before.findings, finding), captured=lost.died.printed)


def _timed_out(lost: Lost) -> Finding:
    limit = limit_of(lost.died.number)
    if lost.while_loading:
        return Finding(
            "GV005",
            f"importing and building what the check names did not end within {limit}",
            name="timed-out",
            hint="run the import by itself; a longer `timeout`, or `--timeout`, holds for it too",
        )
    return Finding("GV005", f"the check did not end within {limit}", name="timed-out", hint=LONGER)


def _crashed(lost: Lost) -> Finding:
    died, hint = lost.died, None
    while_ = " while it was imported" if lost.while_loading else ""
    if died.how == "signal":
        name = _name(int(died.number))
        hint = SIGNAL_HINTS.get(name.partition(" ")[0])
        message = f"the process of this check was ended{while_} by {name}"
    elif died.how == "status":
        message = (
            f"the process of this check ended{while_} with status {int(died.number)} before there "
            "was a result"
        )
        hint = (
            "the code, or a library that it calls, ended the process itself (exit, _exit, exec): "
            "what it checked is not known"
        )
    elif died.how == "processes":
        message = (
            f"this check had started {int(died.number)} processes{while_} that ran at the same "
            f"time, and was ended: no more than {MOST} may"
        )
        hint = "code that forks and does not end the child forks in the child too"
    elif died.how in ("server", "parent"):
        by = f" by {_name(int(died.number))}" if died.number else ""
        while_ = "was imported" if lost.while_loading else "ran"
        message = (
            f"the process that all checks are started from was ended{by} while this check "
            f"{while_}, and again when it ran alone"
        )
        hint = (
            "the code ends its parent process (`os.kill(os.getppid(), …)`), or memory ran out: "
            f"{OUT_OF_MEMORY}"
        )
    elif died.how == "garbled":
        message = (
            f"the process of this check wrote{while_} into the pipe that its result goes through"
        )
        hint = GARBLED
    else:
        message = (
            f"the process of this check went on{while_} but closed the pipe that its result goes "
            "through"
        )
    return Finding("GV004", message, name="crashed", hint=hint)


def _name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _of_thread(stack: str) -> str:
    """Return the part of a stack that belongs to the running thread."""
    threads = re.split(r"\n(?=(?:Current )?[Tt]hread 0x)", stack)
    return next(
        (
            thread
            for thread in threads
            if thread.lstrip().startswith(("Current thread", "Fatal")) and "File" in thread
        ),
        threads[0],
    )


def _frames(stack: str) -> Iterator[Frame]:
    """Yield the user's frames of the running thread, innermost last, from a stack as faulthandler
    writes it (innermost first)."""
    found = [match for match in _LINE.finditer(_of_thread(stack)) if not _is_ours(match["file"])]
    for match in reversed(found[:FRAMES]):
        line = int(match["line"])
        yield Frame(
            shown_path(match["file"]),
            line,
            match["function"],
            linecache.getline(match["file"], line).strip(),
        )


def _is_ours(file: str) -> bool:
    if file.startswith(_BUILTINS):
        return False
    installed = "/site-packages/" in file
    return (
        file.startswith((_PACKAGE, "<"))
        or (file.startswith(_STANDARD) and not installed)
        or "/site-packages/torch/" in file
    )


# ---- Results that the measurement itself makes undecided: the check replaced what gradients are
# measured with, or memory ran short
# Messages of Python, NumPy and torch where memory runs out
NO_MEMORY = re.compile(r"MemoryError|[Cc]an(?:'t|not) allocate memory|CUDA out of memory")
SMALLER = (
    "check a smaller input, run fewer checks at a time (`-j`), or see what else holds memory there "
    "(`ulimit -d`, `nvidia-smi`)"
)


def undecided(
    result: CaseResult, replaced: tuple[str, ...], before: tuple[str, ...] = ()
) -> CaseResult:
    """Return the result, made undecided if functions of `subject.instruments` were `replaced` at
    the end of the check.

    Neither a pass nor a failure is reliable then, and an internal error is no fault of gradverify.
    An error that the function's own code raised is kept. `before`: the functions that were replaced
    already when the check began.
    """
    if not replaced or result.verdict in ("skip", "not_run", "undecided"):
        return result
    found = replaced[0]
    if (
        found not in before
        and result.verdict == "error"
        and not result.faults
        and any(finding.frames for finding in result.findings)
    ):
        return result
    what = (
        f"{found.split()[1]} was replaced before this check, in the same process"
        if found in before
        else f"the check {found}"
    )
    finding = Finding(
        "GV007",
        f"{what}, which gradients are measured with: no verdict can be given",
        name="undecided",
        hint="put it back before the call returns; all code of a process shares it",
    )
    return unjudged(result, finding, "undecided")


def short_of_memory(result: CaseResult) -> CaseResult:
    """Return the result, adapted to a shortage of memory: where gradverify's own computing ran out,
    it becomes GV008 without a fault; errors of the user's code get a hint."""
    if any(NO_MEMORY.search(fault.what) for fault in result.faults):
        finding = Finding(
            "GV008",
            f"measuring it takes more memory than there is on {result.device}",
            name="nothing-checked",
            hint=SMALLER,
        )
        return unjudged(result, finding)
    findings = (
        replace(each, hint=SMALLER)
        if not each.hint and each.severity == "error" and NO_MEMORY.search(each.message)
        else each
        for each in result.findings
    )
    return replace(result, findings=tuple(findings))
