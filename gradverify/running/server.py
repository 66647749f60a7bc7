"""The process that workers are forked from ("server"), where the platform supports it: it imports
torch once, while this process does other work."""

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

# ---- Resources that worker processes need to start: a shortage is for the user to change, and no
# fault of gradverify
DESCRIPTORS = 64  # open files that starting workers takes
MEMORY = 2 * 2**30  # bytes of address space that torch and a check need
TOO_LONG = "AF_UNIX path too long"
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


def is_lack(error: BaseException) -> bool:
    """Return whether an error is due to a shortage of memory or descriptors, not to a fault."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORT)


def lacking(error: BaseException | None = None) -> str | None:
    """Return a sentence on the shortage, by `error` or the limits of this process, that keeps
    workers from starting; None if there is none."""
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


# ---- The server process
PRELOADED = ["gradverify.running.preload"]
UNSUPPORTED = (
    "checks run in worker processes, which need Linux or macOS: on Windows use WSL, or `gradverify "
    "check --no-isolate`"
)
ENDS_WITHIN = 5.0  # seconds for a server whose pipes are closed to have ended


def start_method() -> ForkServerContext:
    """Return the forkserver context, in which a worker starts in 10 to 20 ms, as torch is imported
    once. Plain fork hangs after one backward.

    Raises ProblemsError on a platform without it (Windows).
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise ProblemsError(UNSUPPORTED)
    return multiprocessing.get_context("forkserver")


def begin() -> None:
    """Start the server, unless it runs; it imports torch in the background. Raises ProblemsError
    where a shortage prevents it."""
    start_method().set_forkserver_preload(PRELOADED)
    try:
        with _same_path():
            # Started first: if the server started the tracker, that would unblock the signals
            resource_tracker.ensure_running()
            with _without_interrupts():
                forkserver.ensure_running()
    except OSError as error:
        why = lacking(error)
        if why is None:
            raise
        raise ProblemsError(why) from None


def end() -> None:
    """Kill the server, if it runs: while it still imports torch, it would outlive this process and
    hold its terminal and pipes."""
    pid = number()
    if pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def number() -> int | None:
    """Return the process number of the server; None if none was started."""
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    return pid if isinstance(pid, int) and pid > 1 else None


def close_inherited() -> None:
    """Close a worker's descriptors of the server and of the resource tracker.

    The server then ends with the supervisor, and not after the last worker, which may hang for
    ever. The tracker belongs to the supervisor alone: code that writes to all descriptors made it
    fail; code in a worker that needs a tracker starts its own.
    """
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
    """Return the exit status, or minus the signal, of a worker whose `sentinel` is ready. Raises
    EOFError where the server ended before it reported the status."""
    return int(forkserver.read_signed(sentinel))


def ended_by(pid: int | None) -> int:
    """Return the signal that ended a server; 0 if it ended otherwise, or the cause is unknown. The
    process remains to be waited for."""
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
    """Block SIGINT and SIGHUP in processes started inside: the server would otherwise answer them
    with a traceback while it imports, or end before the supervisor. Workers unblock both."""
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
    """Let processes started inside find the modules that this process finds, and none in the
    current folder, which may contain a `types.py`."""
    variables = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(python_path())}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
