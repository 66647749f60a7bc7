"""User code that could not be found, called or differentiated: data for a finding, with the user's own frames."""

from __future__ import annotations

import importlib
import os
import re
import traceback
from itertools import groupby
from pathlib import Path
from types import TracebackType

import torch

from gradverify.model.result import Frame

CODE = "GV001"      # what cannot be imported or made
REFUSES_DOUBLE = re.compile(r"expected scalar type (Complex)?Float but found (Complex)?Double|not implemented for '(Complex)?Double'")     # torch's
FRAMES = 8          # of each end of a traceback: endless recursion has a thousand
SINGLE_ONLY = "if it computes in single precision only, say `dtype: float32` (or complex64) in the check"
WANTS_WHOLE = re.compile(
    r"used as indices must be|Expected dtype int|scalar types: Long|[Ee]xpected scalar type (Long|Int) |index tensor of type Long|dtype to be Long")
WHOLE_NUMBERS = "`values` have the check's dtype, whole ones too: for indices say `dtype: int64` in the input, or draw them with `integers`"
WANTS_TENSOR = re.compile(r"must be Tensor, not list")
LIST_OF_NUMBERS = "a list is passed as it is: a tensor of that shape is `x: {shape: [40, 30]}`, one of these numbers `x: {values: [40, 30]}`"
_PACKAGE = Path(__file__).resolve().parent.parent
_USER_ROOMS = ("functions", "gallery")      # what a spec may name is checked like anybody's code
_FOREIGN = (f"{_PACKAGE}{os.sep}", f"{Path(torch.__file__).resolve().parent}{os.sep}", f"{Path(importlib.__file__).parent}{os.sep}",
            "<frozen importlib")


class UserCodeError(Exception):
    """Raised where user code cannot be judged. `code` is the rule's, `message` one sentence, `frames` the user's own."""

    def __init__(self, code: str, message: str, frames: tuple[Frame, ...] = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.frames, self.hint = code, message, frames, hint


class blamed:  # noqa: N801 - read as a word: `with blamed("GV002", "forward")`
    """Turns whatever the user's code raises inside into a UserCodeError: "{what} raised ValueError: …"; a dtype refused: with what to write."""

    __slots__ = ("_code", "_what")      # a class: a generator's context costs as much as a small forward

    def __init__(self, code: str, what: str) -> None:
        self._code, self._what = code, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            blame(error, self._code, self._what)


def blame(error: BaseException, code: str, what: str) -> None:
    """What `blamed` raises for an exception; nothing for one that is to go on as it is."""
    if isinstance(error, UserCodeError | KeyboardInterrupt):
        return
    text = describe(error)      # `sys.exit()` in the user's code must not end the run: every BaseException is meant
    raise UserCodeError(code, f"{what} raised {text}", user_frames(error), _what_to_write(text)) from error


def _what_to_write(text: str) -> str | None:
    """A hint for the spec, where torch says what it wanted."""
    if REFUSES_DOUBLE.search(text):
        return SINGLE_ONLY
    return WHOLE_NUMBERS if WANTS_WHOLE.search(text) else LIST_OF_NUMBERS if WANTS_TENSOR.search(text) else None


def describe(error: BaseException) -> str:
    """`ValueError: its text`, in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:       # an exception of the user's may fail to say what it is
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def user_frames(error: BaseException) -> tuple[Frame, ...]:
    """The frames of a traceback that are neither gradverify's nor torch's, a repeated one once; of many the first and the last ones."""
    frames = [Frame(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
              for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        frames.append(Frame(error.filename, error.lineno or 0, "<module>", (error.text or "").strip()))
    frames = [frame for frame, _ in groupby(frames)]
    return tuple(frames if len(frames) <= 2 * FRAMES else frames[:FRAMES] + frames[-FRAMES:])


def _is_users(filename: str) -> bool:
    if any(filename.startswith(f"{_PACKAGE / room}{os.sep}") for room in _USER_ROOMS):
        return True
    return not filename.startswith(_FOREIGN)
