"""The only writer: stdout for the format asked for, stderr for everything else, report files whole
or not at all; and the terminal."""

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

from gradverify.model.interrupt import STOP_SIGNALS, is_ignored
from gradverify.model.problem import Problem, ProblemsError
from gradverify.report.look import Look
from gradverify.report.names import clean, inert

OPEN_DESCRIPTOR = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/[^/]+/fd/\d+")


class ReaderGone(Exception):  # noqa: N818 - no error: whoever read stdout has seen enough
    """The other end of stdout was closed (`| head -1`). No OSError, which typer would turn into
    exit code 1."""


class NotWritten(Exception):  # noqa: N818
    """A report could not be written after the run; carries the sentence to show."""


def open_streams() -> None:
    """Standard streams that the caller had closed (`>&-`, some daemons) lead to nowhere, so that no
    file takes their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Takes the lowest free number, this one; for worker processes too
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


class Output:
    """The streams of one command line, `arguments`.

    `outlives_reader`: once stdout is closed or full what is written there is dropped and the run
    goes on, because files are still wanted.
    `failure`: why stdout could not be written, for the end of the run.
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
        """Write to stdout and flush: text in which no CI service finds a command, then `commands`
        that it is to find. Raises ReaderGone where the other end is closed."""
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
        """From now on stdout is ours alone: what threads and exit handlers of the user's code print
        to it goes to stderr."""
        if self.stdout is not sys.stdout:
            return
        with contextlib.suppress(OSError, ValueError):
            number = self.stdout.fileno()
            own = os.fdopen(os.dup(number), "w", encoding=self.stdout.encoding, errors="replace")
            os.dup2(self.stderr.fileno(), number)
            self.stdout = own

    def say(self, text: str) -> None:
        """Write a line to stderr, without control characters and commands of CI services; does
        nothing where stderr is closed."""
        with contextlib.suppress(OSError, ValueError):
            self.stderr.write(inert(clean(text)) + "\n")
            self.stderr.flush()

    def beside_stderr(self) -> TextIO:
        """A stream to the same place that goes on showing while stderr itself is captured with what
        the user's code prints."""
        try:
            return os.fdopen(
                os.dup(self.stderr.fileno()), "w", encoding=self.stderr.encoding, errors="replace"
            )
        except (OSError, ValueError):
            return self.stderr

    def problems(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.say(str(problem))

    def _forget_stdout(self) -> None:
        """Whatever is still buffered goes nowhere, so that the interpreter's own flush at exit
        stays silent too."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stdout.fileno())
            os.close(nowhere)


def promise(path: Path, option: str = "--report") -> Path:
    """Makes sure before a run that `path` can be written after it; creates parent folders. Raises
    ProblemsError.

    The absolute path, which stays the same wherever the user's code goes.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_special(path):
            return path.absolute()
        beside = _beside(path)
        beside.touch(exist_ok=False)
        beside.unlink()
    # A NUL in the name, links in a circle
    except (OSError, ValueError, RuntimeError) as error:
        raise ProblemsError(
            f"{option}: {path} cannot be written: {getattr(error, 'strerror', None) or error}"
        ) from None
    return path.absolute()


def forget(path: Path) -> None:
    """Removes the report of an earlier run, which one that is killed would leave in its place; a
    link stays."""
    with contextlib.suppress(OSError):
        if not is_special(path):
            path.resolve().unlink(missing_ok=True)


def keep(path: Path, text: str) -> None:
    """Writes beside `path`, then renames: nobody ever sees half a report, and of two runs that
    write one the later stands. Ctrl-C and its like wait until it is there. Raises NotWritten."""
    try:
        if is_special(path):
            # Stdout may be a file that holds something already
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
    beside = _beside(path)
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold off the signals that end a run until this ends; a second SIGINT, of somebody who waits
    for a disk that does not answer, is raised at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def note(number: int, frame: object) -> None:
        if number == signal.SIGINT and number in heard:
            raise KeyboardInterrupt
        heard.append(number)

    before = {
        number: signal.signal(number, note) for number in STOP_SIGNALS if not is_ignored(number)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if heard:
            signal.raise_signal(heard[0])


def _beside(path: Path) -> Path:
    """A new file in the folder of the file that `path` leads to; its name is short, whatever that
    of the report."""
    return path.resolve().with_name(f".gradverify-{os.urandom(8).hex()}.tmp")


def is_special(path: Path) -> bool:
    """Devices, pipes and open descriptors (/dev/null, /dev/stdout) are written to, never
    replaced."""
    try:
        # Once: another run may remove the file between two questions
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) or OPEN_DESCRIPTOR.fullmatch(str(path.absolute())) is not None


UNKNOWN_WIDTH = 120
"""Where nothing says how wide the reader's window is: logs scroll sideways better than numbers
fold."""

ACTIONS = "GITHUB_ACTIONS"
NO_TERMINAL = frozenset({"CI", "PRE_COMMIT"})
"""Variables whose owner reads output later, even where it gives us a terminal."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """`columns` is None where there is no terminal to ask."""

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
    """Set to anything but nothing, 0 or false."""
    return environ.get(name, "").lower() not in ("", "0", "false")


def is_read_on_github(asked: str | None, environ: Mapping[str, str]) -> bool:
    """Is stdout to carry workflow commands? Where `--format` says so, or says nothing and GitHub
    Actions runs this."""
    return asked == "github" or (asked is None and is_set(environ, ACTIONS))


def is_watched(screen: Terminal, environ: Mapping[str, str]) -> bool:
    """Does a person watch this stream as it is written, on something that may move a cursor? Not
    under NO_COLOR."""
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
    asked_width: int | None = None,
    max_rows: int = 10,
    verbosity: int = 0,
    slowest: int | None = None,
) -> Look:
    """Where no format was asked for: tables on a terminal and where colour was asked for, plain
    elsewhere. Plain wraps where the width is known."""
    # `--color` first, then NO_COLOR, then FORCE_COLOR, then whether a person watches
    paint = color == "always" or (
        color == "auto"
        and not environ.get("NO_COLOR")
        and (is_set(environ, "FORCE_COLOR") or is_watched(screen, environ))
    )
    boxes = format == "table" or (format is None and (screen.is_terminal or paint))
    said = environ.get("COLUMNS", "")
    # `--width`, COLUMNS, the terminal's own
    width = asked_width or (int(said) if said.isdecimal() else 0) or screen.columns
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
