"""Internal errors of gradverify ("faults"), as data: a fault affects one check at most, and is
reported at the end of the run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import CaseResult, Fault, Finding, Frame

Value = TypeVar("Value")
FRAMES = 8  # the last ones of a traceback
LONGEST = 1000  # characters of an exception's text in a report
FAILED = "gradverify itself failed"
_PACKAGE = Path(__file__).resolve().parent.parent
_TRACEBACK = BaseException.__dict__["__traceback__"]
_NAME = type.__dict__["__name__"]


UNWRITTEN, BESIDE = "GV231", "GV232"
"""Codes of calls that read unwritten memory, or write beside a tensor: such a call has no value at
any inputs, and the check ends."""


class UserCodeError(Exception):
    """Raised where user code cannot be judged. `code`: of the rule; `message`: one sentence;
    `frames`: the user's frames of the traceback."""

    def __init__(
        self, code: str, message: str, frames: tuple[Frame, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.frames, self.hint = code, message, frames, hint

    @property
    def finding(self) -> Finding:
        """The finding that reports this error."""
        return Finding(self.code, self.message, hint=self.hint, frames=self.frames)


def attempted(call: Callable[..., Value], *given: Any, **named: Any) -> Value | UserCodeError:
    """Return the result of a call, or the UserCodeError raised in it."""
    try:
        return call(*given, **named)
    except UserCodeError as error:
        return error


def tried(call: Callable[..., Value], *given: Any, **named: Any) -> Value | None:
    """Return the result of a call; None where it raises UserCodeError."""
    found = attempted(call, *given, **named)
    return None if isinstance(found, UserCodeError) else found


class ToolError(BaseException):
    """An internal error of gradverify inside a call of the user's code; its cause is the original
    exception, its text the place.

    Not an Exception: neither the user's code nor ours may catch it as an error of the call.
    """


def fault_of(error: BaseException, during: str, costs: bool = True) -> Fault:
    """Return an exception as a Fault. `during`: the step in which it was raised; `costs`: because
    of it the check has no verdict, or a rule did not run."""
    cause = error.__cause__ if type(error) is ToolError and error.__cause__ is not None else error
    return Fault(during, described(cause), _place(cause), traced(cause), costs)


def verdictless(fault: Fault) -> str:
    """Return the `reason` of a check that has no verdict because of a fault."""
    return f"{FAILED} in {fault.during} ({fault.what}): there is no verdict on the function"


def of_fault(check: CaseResult, fault: Fault) -> CaseResult:
    """Return the result of a check, of which nothing is known yet, with a fault that ended it."""
    return replace(check, verdict="error", reason=verdictless(fault), faults=(fault,))


def described(error: BaseException) -> str:
    """Return `ValueError: its text`, in one line of printable characters, even if the exception's
    own methods raise."""
    name, text = type_name(error), spelled(error, str)
    return f"{name}: {text}" if text else name


def type_name(value: object) -> str:
    """Return the name of a value's class, even if its metaclass overrides `__name__`."""
    return legible(str(_NAME.__get__(type(value))))


def spelled(value: object, spell: Callable[[object], str]) -> str:
    """Return `spell(value)` in one line, cut in the middle if it is long; empty if `spell`
    raises."""
    try:
        text = spell(value)
        return legible(" ".join(str.__str__(text).split()))
    except BaseException as refused:
        if is_interrupt(refused):
            raise
        return ""


def legible(text: str) -> str:
    """Return a text with unprintable characters escaped, and the middle of a long one cut out."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def traced(error: BaseException) -> str:
    """Return the last frames of a traceback as text, without the values of locals."""
    try:
        lines = "".join(
            traceback.format_exception(
                type(error), error, _TRACEBACK.__get__(error), limit=-FRAMES, chain=False
            )
        ).splitlines()
        return "".join(f"{line}\n" for line in lines if line.strip("~^ "))
    except BaseException as refused:
        if is_interrupt(refused):
            raise
        return f"{described(error)} (its traceback cannot be shown)\n"


def distinct(checks: Iterable[CaseResult]) -> tuple[tuple[Fault, Sequence[str]], ...]:
    """Return each fault of a run once, with the ids of the checks it affected. Faults with the same
    place and type of exception count as one."""
    seen: dict[tuple[str, str], tuple[Fault, list[str]]] = {}
    for check in checks:
        for fault in check.faults:
            _, ids = seen.setdefault((fault.place, fault.what.partition(":")[0]), (fault, []))
            if check.id not in ids:
                ids.append(check.id)
    return tuple(seen.values())


def _place(error: BaseException) -> str:
    """Return the innermost line of gradverify in a traceback: `causes/swapped.py:30`."""
    trace, place = _TRACEBACK.__get__(error), "?"
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            place = f"{file.relative_to(_PACKAGE).as_posix()}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def frames_of(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of a traceback, outermost first."""
    trace = _TRACEBACK.__get__(error)
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
