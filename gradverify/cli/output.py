"""The only writer: stdout for the format asked for, stderr for everything else, report files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from gradverify.model.problem import Problem, ProblemsError


class ReaderGone(Exception):  # noqa: N818 - no error: whoever read stdout has seen enough
    """The other end of stdout was closed (`| head -1`). No OSError, which typer would turn into exit code 1."""


class NotWritten(Exception):  # noqa: N818
    """A report could not be written after the run; carries the sentence to show."""


def open_streams() -> None:
    """Standard streams that the caller had closed (`>&-`, some daemons) lead to nowhere, so that no file takes their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)    # takes the lowest free number, this one; for worker processes too
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


class Output:
    """The streams of one command line, `arguments`.

    `outlives_reader`: once stdout is closed what is written there is dropped and the run goes on, because files are still wanted.
    """

    def __init__(self, arguments: Sequence[str] = (), stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.arguments = tuple(arguments)
        self.stdout, self.stderr = stdout or sys.stdout, stderr or sys.stderr
        self.outlives_reader = False
        for stream in (self.stdout, self.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")

    def write(self, text: str) -> None:
        """To stdout, at once. Raises ReaderGone where nobody reads it any more."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except BrokenPipeError:
            self._forget_stdout()
            if not self.outlives_reader:
                raise ReaderGone from None
        except OSError as error:
            self._forget_stdout()
            raise NotWritten(f"stdout could not be written: {error.strerror or error}") from None

    def keep_stdout(self) -> None:
        """From now on stdout is ours alone: what threads and exit handlers of the user's code print to it goes to stderr."""
        if self.stdout is not sys.stdout:
            return
        with contextlib.suppress(OSError, ValueError):
            number = self.stdout.fileno()
            own = os.fdopen(os.dup(number), "w", encoding=self.stdout.encoding, errors="replace")
            os.dup2(self.stderr.fileno(), number)
            self.stdout = own

    def say(self, text: str) -> None:
        """A line to stderr; lost silently where stderr is closed."""
        with contextlib.suppress(OSError, ValueError):
            self.stderr.write(text + "\n")
            self.stderr.flush()

    def beside_stderr(self) -> TextIO:
        """A stream to the same place that goes on showing while stderr itself is captured with what the user's code prints."""
        try:
            return os.fdopen(os.dup(self.stderr.fileno()), "w", encoding=self.stderr.encoding, errors="replace")
        except (OSError, ValueError):
            return self.stderr

    def problems(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.say(str(problem))

    def _forget_stdout(self) -> None:
        """Whatever is still buffered goes nowhere, so that the interpreter's own flush at exit stays silent too."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stdout.fileno())
            os.close(nowhere)


def promise(path: Path) -> Path:
    """Makes sure before a run that `path` can be written after it; creates parent folders. Raises ProblemsError.

    The absolute path, which stays the same wherever the user's code goes.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        if _is_special(path):
            return path.absolute()
        beside = _beside(path)
        beside.touch(exist_ok=False)
        beside.unlink()
    except OSError as error:
        raise ProblemsError([Problem(f"--report: {path} cannot be written: {error.strerror or error}")]) from None
    return path.absolute()


def forget(path: Path) -> None:
    """Removes the report of an earlier run, which one that is killed would leave in its place."""
    with contextlib.suppress(OSError):
        if not _is_special(path):
            path.unlink(missing_ok=True)


def keep(path: Path, text: str) -> None:
    """Writes beside `path`, then renames, so that a reader never sees half a report. Raises NotWritten."""
    target = path if _is_special(path) else _beside(path)
    try:
        target.write_text(text, encoding="utf-8")
        if target is not path:
            target.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            if target is not path:
                target.unlink()
        raise NotWritten(f"{path} could not be written: {error.strerror or error}") from None


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _is_special(path: Path) -> bool:
    """Devices and pipes (/dev/null) are written to, never replaced."""
    return path.exists() and not path.is_file()
