"""A fault of gradverify's own, as data: it costs one check at most, and is told at the end of the
run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import CaseResult, Fault, Finding, Frame

FRAMES = 8  # the last ones of a traceback
LONGEST = 1000  # characters of an exception's text in a report
FAILED = "gradverify itself failed"
_PACKAGE = Path(__file__).resolve().parent.parent
_TRACEBACK = BaseException.__dict__["__traceback__"]
_NAME = type.__dict__["__name__"]


class UserCodeError(Exception):
    """Raised where user code cannot be judged. `code` is the rule's, `message` one sentence,
    `frames` the user's own."""

    def __init__(
        self, code: str, message: str, frames: tuple[Frame, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.frames, self.hint = code, message, frames, hint

    @property
    def finding(self) -> Finding:
        """What a report says of it."""
        return Finding(self.code, self.message, hint=self.hint, frames=self.frames)


class ToolError(BaseException):
    """A fault of gradverify's own inside a call of the user's code; its cause is what was raised,
    its text where.

    Not an Exception: neither the user's code nor ours may take it for an answer of the call.
    """


def fault_of(error: BaseException, during: str, costs: bool = True) -> Fault:
    """`during`: what was being done. `costs`: without it the check has no verdict, or a rule did
    not run."""
    cause = error.__cause__ if type(error) is ToolError and error.__cause__ is not None else error
    return Fault(during, described(cause), _place(cause), traced(cause), costs)


def verdictless(fault: Fault) -> str:
    """The reason of a check that has no verdict for it."""
    return f"{FAILED} in {fault.during} ({fault.what}): there is no verdict on the function"


def of_fault(check: CaseResult, fault: Fault) -> CaseResult:
    """The result of a check of which a fault of ours leaves nothing else."""
    return CaseResult(
        check.id,
        check.spec,
        check.name,
        check.function,
        check.device,
        check.dtype,
        check.seed,
        check.settings,
        "error",
        expect=check.expect,
        ok=None if check.ok is None else False,
        reason=verdictless(fault),
        faults=(fault,),
    )


def described(error: BaseException) -> str:
    """`ValueError: its text`, in one line of printable characters; whatever the exception does when
    it is asked."""
    name, text = type_name(error), spelled(error, str)
    return f"{name}: {text}" if text else name


def type_name(value: object) -> str:
    """The name of a value's class, past whatever its metaclass says."""
    return legible(str(_NAME.__get__(type(value))))


def spelled(value: object, spell: Callable[[object], str]) -> str:
    """`spell(value)` in one line, cut in its middle where it is long; empty where the value
    refuses."""
    try:
        text = spell(value)
        return legible(" ".join(str.__str__(text).split()))
    except BaseException as refused:
        if is_interrupt(refused):
            raise
        return ""


def legible(text: str) -> str:
    """Whatever cannot be printed or encoded is escaped; of a long text the two ends."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def traced(error: BaseException) -> str:
    """The last frames, without the values of locals."""
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
    """Each fault of a run once, with the ids of the checks it befell: one place and one kind of
    exception is one fault."""
    seen: dict[tuple[str, str], tuple[Fault, list[str]]] = {}
    for check in checks:
        for fault in check.faults:
            _, ids = seen.setdefault((fault.place, fault.what.partition(":")[0]), (fault, []))
            if check.id not in ids:
                ids.append(check.id)
    return tuple(seen.values())


def _place(error: BaseException) -> str:
    """The innermost line of gradverify in a traceback: `causes/swapped.py:30`."""
    trace, place = _TRACEBACK.__get__(error), "?"
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            place = f"{file.relative_to(_PACKAGE).as_posix()}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def frames_of(error: BaseException) -> Iterator[FrameType]:
    """The frames of a traceback, outermost first."""
    trace = _TRACEBACK.__get__(error)
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
