"""All output: stdout for the requested format, stderr for everything else, report files written
entirely or not at all; and properties of the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from gradverify.model.interrupt import handled
from gradverify.model.problem import Problem, ProblemsError
from gradverify.report.look import Look
from gradverify.report.names import clean, inert

OPEN_DESCRIPTOR = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/[^/]+/fd/\d+")


class ReaderGone(Exception):  # noqa: N818 - no error: the reader of stdout has stopped reading
    """Raised where the other end of stdout was closed (`| head -1`). Not an OSError, which typer
    would turn into exit code 1."""


class NotWritten(Exception):  # noqa: N818
    """Raised if a report could not be written after the run; the message is the sentence to
    show."""


def open_streams() -> None:
    """Open /dev/null for standard streams that the caller had closed (`>&-`, some daemons), so that
    no file takes their descriptor."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Takes the lowest free descriptor, which is this one; workers inherit it
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


class Output:
    """The streams of one command line, `arguments`.

    `outlives_reader`: once stdout is closed or full, output to it is dropped and the run goes on,
    because report files are still to be written.
    `failure`: why stdout could not be written, reported at the end of the run.
    """

    def __init__(
        self,
        arguments: Sequence[str] = (),
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.arguments = tuple(arguments)
        self.stdout, self.stderr = stdout or sys.stdout, stderr or sys.stderr
        self.outlives_reader = False
        self.failure = ""
        for stream in (self.stdout, self.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")

    def write(self, text: str, commands: str = "") -> None:
        """Write to stdout and flush: `text` with commands of CI services escaped, then `commands`
        unescaped. Raises ReaderGone if the other end is closed."""
        try:
            self.stdout.write(inert(text) + commands)
            self.stdout.flush()
        except BrokenPipeError:
            self._forget_stdout()
            if not self.outlives_reader:
                raise ReaderGone from None
        except OSError as error:
            self._forget_stdout()
            self.failure = self.failure or f"stdout could not be written: {error.strerror or error}"
            if not self.outlives_reader:
                raise NotWritten(self.failure) from None

    def keep_stdout(self) -> None:
        """Reserve stdout from now on: output of threads and exit handlers of the user's code goes
        to stderr."""
        if self.stdout is not sys.stdout:
            return
        with contextlib.suppress(OSError, ValueError):
            number = self.stdout.fileno()
            own = os.fdopen(os.dup(number), "w", encoding=self.stdout.encoding, errors="replace")
            os.dup2(self.stderr.fileno(), number)
            self.stdout = own

    def say(self, text: str) -> None:
        """Write a line to stderr, without control characters and commands of CI services. Does
        nothing if stderr is closed."""
        with contextlib.suppress(OSError, ValueError):
            self.stderr.write(inert(clean(text)) + "\n")
            self.stderr.flush()

    def stderr_copy(self) -> TextIO:
        """Return a stream to the destination of stderr, usable while stderr itself is captured with
        the output of the user's code."""
        try:
            return os.fdopen(
                os.dup(self.stderr.fileno()), "w", encoding=self.stderr.encoding, errors="replace"
            )
        except (OSError, ValueError):
            return self.stderr

    def problems(self, problems: Iterable[Problem]) -> None:
        """Write each problem to stderr."""
        for problem in problems:
            self.say(str(problem))

    def _forget_stdout(self) -> None:
        """Redirect stdout to /dev/null, so that flushing its buffer at exit raises no error."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stdout.fileno())
            os.close(nowhere)


def promise(path: Path, option: str = "--report") -> Path:
    """Check before a run that `path` can be written after it; create parent folders. Raises
    ProblemsError.

    Returns the absolute path, which stays valid if the user's code changes the current folder.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_special(path):
            return path.absolute()
        temporary = _temporary(path)
        temporary.touch(exist_ok=False)
        temporary.unlink()
    # A NUL in the name, links in a circle
    except (OSError, ValueError, RuntimeError) as error:
        raise ProblemsError(
            f"{option}: {path} cannot be written: {getattr(error, 'strerror', None) or error}"
        ) from None
    return path.absolute()


def forget(path: Path) -> None:
    """Remove the report of an earlier run, which would remain if this run is killed. A link
    stays."""
    with contextlib.suppress(OSError):
        if not is_special(path):
            path.resolve().unlink(missing_ok=True)


def keep(path: Path, text: str) -> None:
    """Write a report to a temporary file next to `path`, then rename that: no reader sees half a
    report, and of two runs the later one remains. Ctrl-C and other signals that end a run wait
    until it is written. Raises NotWritten."""
    try:
        if is_special(path):
            # Stdout may be a file that is not empty
            with path.open("a", encoding="utf-8") as stream:
                stream.write(inert(text))
            return
        with _uninterrupted():
            _replace(path.resolve(), text)
    except UnicodeEncodeError as error:
        bytes_ = error.object[error.start : error.end]
        raise NotWritten(
            f"{path} could not be written: {bytes_!r} stands for bytes of a name that are no UTF-8"
        ) from None
    except OSError as error:
        raise NotWritten(f"{path} could not be written: {error.strerror or error}") from None


def _replace(path: Path, text: str) -> None:
    temporary = _temporary(path)
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay the signals that end a run until this ends. A second SIGINT is raised at once, as the
    disk may not respond."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        received.append(number)

    try:
        with handled(note):
            yield
    finally:
        if received:
            signal.raise_signal(received[0])


def _temporary(path: Path) -> Path:
    """Return the path of a new file in the folder of the report, links followed. Its name is short
    even if that of the report is long."""
    return path.resolve().with_name(f".gradverify-{os.urandom(8).hex()}.tmp")


def is_special(path: Path) -> bool:
    """Return whether a path is a device, pipe or open descriptor (/dev/null, /dev/stdout), which is
    written to and never replaced."""
    try:
        # One call: another run may remove the file between two
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) or OPEN_DESCRIPTOR.fullmatch(str(path.absolute())) is not None


UNKNOWN_WIDTH = 120
"""The width if that of the reader's window is unknown: in logs, long lines are better than wrapped
numbers."""

ACTIONS = "GITHUB_ACTIONS"
NO_TERMINAL = frozenset({"CI", "PRE_COMMIT"})
"""Variables of programs that show the output later, even if they provide a terminal."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Properties of an output stream. `columns`: the width of the terminal, None without one."""

    is_terminal: bool
    columns: int | None
    encoding: str


def terminal(stream: TextIO) -> Terminal:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        columns = None
    return Terminal(stream.isatty(), columns, getattr(stream, "encoding", None) or "utf-8")


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Return whether a variable is set to anything but an empty string, 0 or false."""
    return environ.get(name, "").lower() not in ("", "0", "false")


def is_read_on_github(format: str | None, environ: Mapping[str, str]) -> bool:
    """Return whether stdout is to contain workflow commands: with `--format github`, or without
    `--format` in GitHub Actions."""
    return format == "github" or (format is None and is_set(environ, ACTIONS))


def is_watched(screen: Terminal, environ: Mapping[str, str]) -> bool:
    """Return whether a person watches this stream as it is written, on a terminal with cursor
    control. False under NO_COLOR."""
    plain = environ.get("TERM") == "dumb" or bool(environ.get("NO_COLOR"))
    return (
        screen.is_terminal and not plain and not any(is_set(environ, name) for name in NO_TERMINAL)
    )


def look(
    screen: Terminal,
    environ: Mapping[str, str],
    *,
    format: str | None = None,
    color: str = "auto",
    given_width: int | None = None,
    max_rows: int = 10,
    verbosity: int = 0,
    slowest: int | None = None,
) -> Look:
    """Return the look of text output. Without a `format`: tables on a terminal or with colour,
    plain elsewhere. Plain text is wrapped if the width is known."""
    # By precedence: `--color`, NO_COLOR, FORCE_COLOR, whether a person watches
    paint = color == "always" or (
        color == "auto"
        and not environ.get("NO_COLOR")
        and (is_set(environ, "FORCE_COLOR") or is_watched(screen, environ))
    )
    boxes = format == "table" or (format is None and (screen.is_terminal or paint))
    columns = environ.get("COLUMNS", "")
    # By precedence: `--width`, COLUMNS, the width of the terminal
    width = given_width or (int(columns) if columns.isdecimal() else 0) or screen.columns
    return Look(
        width=width or UNKNOWN_WIDTH,
        color=boxes and paint,
        boxes=boxes,
        wrap=boxes or bool(width),
        ascii="utf" not in screen.encoding.lower(),
        max_rows=max_rows,
        verbosity=verbosity,
        slowest=slowest,
    )
