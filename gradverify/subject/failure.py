"""Errors of user code that cannot be found, called or differentiated, as data for a finding, with
the user's own frames."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import NoReturn

import numpy as np
import torch

from gradverify.model.case import Case
from gradverify.model.fault import ToolError, described, legible, spelled
from gradverify.model.fault import UserCodeError as UserCodeError
from gradverify.model.fault import Value as Value
from gradverify.model.fault import attempted as attempted
from gradverify.model.fault import tried as tried
from gradverify.model.fault import type_name as type_name
from gradverify.model.interrupt import Spent as Spent
from gradverify.model.interrupt import is_interrupt, raise_if_interrupted
from gradverify.model.result import Finding, Frame
from gradverify.subject.interpreted import INSTALL
from gradverify.subject.interpreted import TOO_LATE as TOO_LATE

CODE = "GV001"  # the target or an input cannot be imported or made
CALLED = "GV002"  # a call raises
# Errors of torch
REFUSES_DOUBLE = re.compile(
    r"expected scalar type (Complex)?Float but found (Complex)?Double|not implemented for "
    r"'(Complex)?Double'"
)
FRAMES = 8  # of each end of a traceback: endless recursion has a thousand
SINGLE_ONLY = (
    "if it computes in single precision only, say `dtype: float32` (or complex64) in the check"
)
WANTS_CUDA = re.compile(
    r"must be (a |on )?(a )?(CUDA|cuda|GPU)|CUDA tensor|[Ee]xpected (a |all |the |\w+ )?tensors? "
    r"(to be )?on (a )?(cuda|CUDA|GPU)|"
    r"not implemented for 'CPU'|from the 'CPU' backend|Pointer argument .*cannot be accessed|[Nn]o "
    r"CUDA GPUs|[Nn]o NVIDIA driver|"
    r"not compiled with CUDA|only (supported|implemented|available|works?|runs?) (on|for) (the "
    r")?(CUDA|cuda|GPU)|"
    r"not (supported|implemented|available) (on|for) (the )?(CPU|cpu)"
)
NO_TRITON = re.compile(r"No module named 'triton['.]")
# Error of Triton, where its interpreter was not enabled in time
NO_DRIVER = re.compile(r"0 active drivers")
ON_CUDA = (
    "if it runs on a GPU only, say `device: cuda` in the check (without one it is then skipped)"
)
# Error of Triton for tensors on another device than the current one
POINTER = "Pointer argument"
ON_CURRENT = (
    "Triton launches on the current device: say `device: cuda`; for another GPU put `with "
    "torch.cuda.device(x.device):` around the launch"
)
WANTS_WHOLE = re.compile(
    r"used as indices must be|Expected dtype int|scalar types: Long|[Ee]xpected scalar type "
    r"(Long|Int) |index tensor of type Long|dtype to be Long|"
    r"Expected a long tensor|should be Long but|should be type int64|[Oo]nly integer tensors of a "
    r"single element|0-dim integral|must be integral|"
    r"only implemented on integer and Boolean|"
    r"\"(repeat_interleave|bincount|bitwise_|lshift|rshift|gcd|lcm)\w*\" not implemented for "
    r"'(Double|Float|Half|BFloat16)'"
)
WANTS_MASK = re.compile(r"only supports boolean masks|to be a boolean tensor|expected BoolTensor")
A_MASK = (
    "a mask is drawn with `kind: mask`; `values: [1, 0, 1]` have the check's dtype: say `dtype: "
    "bool` in that input"
)
WHOLE_NUMBERS = (
    "a tensor has the check's dtype, whole numbers in `values` too: for indices say `dtype: int64` "
    "in the input, or draw them with `integers`"
)
HINTS = (
    (NO_TRITON, INSTALL),
    (NO_DRIVER, TOO_LATE),
    (WANTS_CUDA, ON_CUDA),
    (WANTS_WHOLE, WHOLE_NUMBERS),
    (WANTS_MASK, A_MASK),
    (REFUSES_DOUBLE, SINGLE_ONLY),
)
"""Patterns of errors of torch and Triton, in order of precedence, with the hint for each."""
REFUSES_LIST = re.compile(
    r"^forward raised TypeError: .*(\blist\b|only integer tensors of a single element)|'list' "
    r"object has no attribute"
)
OF_MODES = frozenset(
    {"answer", "_answered", "_guarded", "guarded", "wrapped", "_called", "__torch_dispatch__"}
)
"""The functions on the stack between an operation in the user's code and its handling by one of our
modes."""
Line = tuple[CodeType, int]  # an instruction of the user's code
SYNTAX = (SyntaxError, IndentationError, TabError)
_PACKAGE = Path(__file__).resolve().parent.parent
# The built-in functions, which a spec may name, are treated like user code
_BUILTINS = f"{_PACKAGE / 'functions'}{os.sep}"
_FOREIGN = (
    f"{_PACKAGE}{os.sep}",
    f"{Path(torch.__file__).resolve().parent}{os.sep}",
    f"{Path(importlib.__file__).parent}{os.sep}",
    "<frozen importlib",
)
_NUMPY = f"{Path(np.__file__).resolve().parent}{os.sep}"
_LIBRARY = f"{Path(os.__file__).resolve().parent}{os.sep}"


class blamed:  # noqa: N801 - read as a word: `with blamed("GV002", "forward")`
    """Context that turns any exception of the user's code into a UserCodeError, "{what} raised
    ValueError: …", with a hint where one is known."""

    # A class: a generator's context costs as much as a small forward
    __slots__ = ("_code", "_what")

    def __init__(self, code: str, what: str) -> None:
        self._code, self._what = code, what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            blame(error, self._code, self._what)


def blame(error: BaseException, code: str, what: str) -> None:
    """Raise the UserCodeError for an exception; return for an exception that must propagate
    unchanged."""
    # `isinstance` would use the exception's own __class__
    if issubclass(type(error), UserCodeError | ToolError | Spent) or is_interrupt(error):
        return
    raise_if_interrupted()
    # `sys.exit()` in the user's code must not end the run: every BaseException is turned
    text = describe(error)
    frames = user_frames(error)
    raise UserCodeError(
        code, f"{what} raised {text}", frames, what_to_write(text, frames)
    ) from error


def nearest(word: str, words: Iterable[str], most: int = 1) -> str | None:
    """Return a "did you mean …?" with the names closest to a word; None where none is close."""
    near = get_close_matches(word, list(words), most)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else None


def refuse(text: str, hint: str | None = None) -> NoReturn:
    """Raise UserCodeError (GV001) for something that cannot be made as the spec describes."""
    raise UserCodeError(CODE, text, hint=hint)


def unnamed(error: BaseException) -> UserCodeError:
    """Return the UserCodeError for an exception raised where the user's code was not called by
    name: in a hook, a property, a `__del__`."""
    return UserCodeError(
        CALLED, f"the function's code raised {describe(error)}", user_frames(error)
    )


def what_to_write(text: str, frames: tuple[Frame, ...]) -> str | None:
    """Return a hint for the spec, where torch's error tells what it requires: a dtype, or a GPU."""
    if text.startswith("AssertionError") and frames and "is_cuda" in frames[-1].text:
        return ON_CUDA
    hint = next((hint for pattern, hint in HINTS if pattern.search(text)), None)
    if hint is ON_CUDA and POINTER in text and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return ON_CURRENT
    return hint


def of_a_list(finding: Finding, case: Case) -> Finding:
    """Add the hint that the spec passes a list of numbers, if forward has refused a list and may
    need a tensor."""
    lists = (
        each
        for each in case.inputs
        if isinstance(each.value, list | tuple)
        and each.value
        and all(type(x) in (int, float) for x in each.value)
    )
    found = next(lists, None)
    if found is None or not REFUSES_LIST.search(finding.message):
        return finding
    name, numbers = found.name or "x", list(found.value)
    shape = (
        f"a tensor of that shape is `{name}: {{shape: {numbers}}}`, "
        if all(type(x) is int and x >= 0 for x in numbers)
        else ""
    )
    return replace(
        finding,
        hint=f"`{name}: {numbers}` is passed as a list: {shape}one of these numbers `{name}: "
        f"{{values: {numbers}}}`",
    )


describe = described
"""Return an exception as one printable line, `ValueError: its text`, even if its own methods
raise."""


def named(value: object) -> str:
    """Return the name of a user's class, function or module; of another object, its type's."""
    try:
        name = getattr(value, "__name__", None)
    except BaseException as refused:
        if is_interrupt(refused):
            raise
        name = None
    return legible(name) if isinstance(name, str) else type_name(value)


def shown(value: object) -> str:
    """Return the repr of a user's object in one line; its type where that fails."""
    return spelled(value, repr) or f"a {type_name(value)}"


def is_users(error: BaseException) -> bool:
    """Return whether an error was raised by the user's code, or by torch called from it. The
    innermost frame that is gradverify's or the user's decides."""
    if type(error) is ToolError:
        return False
    files = [frame.filename for frame in _extracted(error)]
    ours = max(
        (
            depth
            for depth, file in enumerate(files)
            if file.startswith(_FOREIGN[0]) and not _is_users(file)
        ),
        default=-1,
    )
    return any(map(_is_line_of_users, files[ours + 1 :]))


def _extracted(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an exception's traceback; none where it cannot be read."""
    try:
        return list(traceback.extract_tb(BaseException.__dict__["__traceback__"].__get__(error)))
    except BaseException as refused:  # a user's loader may provide the source lines
        if is_interrupt(refused):
            raise
        return []


def user_frames(error: BaseException) -> tuple[Frame, ...]:
    """Return the frames of a traceback that are neither gradverify's nor torch's, without
    consecutive repetitions; of many, the first and the last."""
    frames = [
        Frame(
            legible(frame.filename),
            frame.lineno or 0,
            legible(frame.name),
            legible(frame.line or ""),
        )
        for frame in _extracted(error)
        if _is_users(frame.filename)
    ]
    if type(error) in SYNTAX and isinstance(error, SyntaxError):
        # Raised by the user's code it may hold values of any type
        file, line, text = error.filename, error.lineno, error.text
        if isinstance(file, str) and _is_users(file):
            frames.append(
                Frame(
                    legible(file),
                    line if isinstance(line, int) else 0,
                    "<module>",
                    legible(text.strip()) if isinstance(text, str) else "",
                )
            )
    frames = [frame for frame, _ in groupby(frames)]
    return tuple(frames if len(frames) <= 2 * FRAMES else frames[:FRAMES] + frames[-FRAMES:])


def users_line() -> Line | None:
    """Return the instruction of the user's code that is being run; None where our own code or
    torch's runs without it. To be called inside one of our modes."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_line_of_users(frame.f_code.co_filename):
        if (
            frame.f_code.co_filename.startswith(_FOREIGN[0])
            and frame.f_code.co_name not in OF_MODES
        ):
            return None
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def _is_line_of_users(filename: str) -> bool:
    """Return whether a file is user code other than Python's library or NumPy, which our code calls
    too."""
    if not _is_users(filename) or filename.startswith(("<frozen", _NUMPY)):
        return False
    return (
        not filename.startswith(_LIBRARY)
        or "site-packages" in filename
        or "dist-packages" in filename
    )


def _is_users(filename: str) -> bool:
    return filename.startswith(_BUILTINS) or not filename.startswith(_FOREIGN)
