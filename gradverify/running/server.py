"""The process that workers are forked from, where the platform has it: it imports torch once,
beside whatever this process does meanwhile."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from typing import Any

from gradverify.model.problem import ProblemsError
from gradverify.source.modules import python_path

# ---- What the surroundings of a run may lack for worker processes to start: it is the user's to
# change, and no fault of gradverify's
DESCRIPTORS = 64  # open files that starting workers takes
MEMORY = 2 * 2**30  # bytes of addresses that torch and a check take at most
TOO_LONG = "AF_UNIX path too long"
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


def is_lack(error: BaseException) -> bool:
    """Was it raised for want of something, and not for a fault?"""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORT)


def lacking(error: BaseException | None = None) -> str | None:
    """The sentence where `error`, or the limits of this process, tell why it cannot start workers;
    None where they do not."""
    if TOO_LONG in str(error):
        import tempfile

        return (
            "worker processes are started through a socket in the folder for temporary files, "
            f"whose name is too long: set TMPDIR to a shorter one than {tempfile.gettempdir()}"
        )
    if error is not None and is_lack(error):
        return (
            "gradverify cannot run here: "
            f"{getattr(error, 'strerror', None) or type(error).__name__} (the limits are those of "
            "`ulimit -a`)"
        )
    try:
        import resource
    except ImportError:
        return None
    least = {
        "open files": (resource.RLIMIT_NOFILE, DESCRIPTORS),
        "bytes of memory": (resource.RLIMIT_AS, MEMORY),
        "bytes of data": (resource.RLIMIT_DATA, MEMORY),
    }
    found = ((what, resource.getrlimit(kind)[0], enough) for what, (kind, enough) in least.items())
    return next(
        (
            (
                f"gradverify cannot run here: it may have {allowed:,} {what}, and needs {enough:,} "
                "(`ulimit -a`)"
            )
            for what, allowed, enough in found
            if 0 <= allowed < enough
        ),
        None,
    )


# ---- The process that workers are forked from, where the platform has it: it imports torch once,
# beside whatever this process does meanwhile
PRELOADED = ["gradverify.running.preload"]
UNSUPPORTED = (
    "checks run in worker processes, which need Linux or macOS: on Windows use WSL, or `gradverify "
    "check --no-isolate`"
)
ENDS_WITHIN = 5.0  # seconds for a server whose pipes are closed to have ended


def start_method() -> ForkServerContext:
    """Forkserver: a worker starts in 10 to 20 ms, as torch is imported once. Never fork: it hangs
    after one backward.

    Raises ProblemsError where there is none, which is Windows."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise ProblemsError(UNSUPPORTED)
    return multiprocessing.get_context("forkserver")


def begin() -> None:
    """Starts the process, unless it runs; it imports torch in the background. Raises ProblemsError
    where the surroundings do not allow it."""
    start_method().set_forkserver_preload(PRELOADED)
    try:
        with _same_path():
            # Started with the other one, it would take the mask off
            resource_tracker.ensure_running()
            with _without_interrupts():
                forkserver.ensure_running()
    except OSError as error:
        why = lacking(error)
        if why is None:
            raise
        raise ProblemsError(why) from None


def end() -> None:
    """Kills the process, if it runs: while it still imports torch it would hold the terminal and
    the pipes of one that has ended."""
    pid = number()
    if pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def number() -> int | None:
    """Its process number; None where none was started."""
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    return pid if isinstance(pid, int) and pid > 1 else None


def let_go() -> None:
    """In a worker: the server ends as soon as the supervisor has, and not after the last worker,
    which may hang for ever. The process that tracks semaphores is the supervisor's alone: what
    writes to all descriptors made it fail; code that needs one starts its own."""
    tracker: Any = getattr(resource_tracker, "_resource_tracker", None)
    for own, name in (
        (getattr(forkserver, "_forkserver", None), "_forkserver_alive_fd"),
        (tracker, "_fd"),
    ):
        held = getattr(own, name, None)
        if isinstance(held, int):
            os.close(held)
            setattr(own, name, None)


def status_of(sentinel: int) -> int:
    """The exit status, or minus the signal, of a worker whose `sentinel` is ready. Raises EOFError
    where the server ended before it could tell."""
    return int(forkserver.read_signed(sentinel))


def ended_by(pid: int | None) -> int:
    """The signal that ended a server; 0 where it ended otherwise, or nobody can say. Whoever asks
    for its end later is told too."""
    until = time.monotonic() + ENDS_WITHIN
    while pid is not None and hasattr(os, "waitid") and time.monotonic() < until:
        try:
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return 0
        if found is not None:
            return found.si_status if found.si_code in (os.CLD_KILLED, os.CLD_DUMPED) else 0
        time.sleep(0.01)
    return 0


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C, and a terminal that is closed, are not heard by what is started inside: while it
    imports, it would answer with a traceback, or end before whoever supervises it. Workers take the
    mask off again."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _same_path() -> Iterator[None]:
    """What is started inside finds the modules that this process finds, and none of the current
    folder, where a `types.py` may lie."""
    said = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(python_path())}
    before = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
