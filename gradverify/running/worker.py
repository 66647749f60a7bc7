"""The main function of a worker process: it imports the modules that checks name, computes nothing
itself, and forks a child for each check."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from os import getpid, write
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from gradverify.model.case import Case
from gradverify.model.codec import from_json, to_json
from gradverify.model.interrupt import beyond_ctrl_c, interruptible
from gradverify.model.proposal import Sought
from gradverify.running.family import adopt_orphans
from gradverify.running.inline import cuda_of, staying
from gradverify.running.lost import encoded, faulty, short_of_memory
from gradverify.running.sending import Sender, leave
from gradverify.running.server import close_inherited
from gradverify.running.supervisor import PIPE_CLOSED, Files, high, keep_to_ourselves, moved

LEAVES_WITHIN = 0.1  # seconds for the processes that a check started to end after it
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl: the signal sent when the parent process ends


class Setup(NamedTuple):
    """The state of the process that runs the command: current folder, environment, `sys.path`;
    `threads` of torch, None: torch's own choice."""

    folder: str
    environment: Mapping[str, str]
    path: tuple[str, ...]
    threads: int | None


@dataclass
class Worker:
    """State of the worker process. `threads`: of torch, in a child; `search`: the import search of
    the spec, entered once something is `loaded`; `watched`: a thread waits for the supervisor's
    end; `own`: the parts of gradverify before user code was imported."""

    pipe: Connection
    alive: Connection
    files: Files
    threads: int
    search: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    loaded: bool = False
    watched: bool = False
    own: Mapping[str, tuple[Any, ...]] | None = None


def serve(pipe: Connection, alive: Connection, setup: Setup, files: Files) -> NoReturn:
    """Run one task after the other, each in a child, until the supervisor is gone.

    The changes that a task makes to its process end with the child, so nothing is put back. The
    child is forked before anything is computed: threads of OpenMP or autograd would be missing in
    it, and it would wait for them.
    """
    worker = Worker(_out_of_the_way(pipe), _out_of_the_way(alive), files, 1)
    _set_up(setup, files)
    messages = Sender(worker.pipe.fileno())
    from gradverify.running.inline import devices
    from gradverify.subject.instruments import own_parts
    from gradverify.subject.machine import imports, threads, use_threads

    if setup.threads is not None:
        use_threads(setup.threads)
    worker.threads = threads()
    worker.own = own_parts()
    machine = _in_child(lambda: to_json(devices()))
    messages.send("ready", machine)
    use_threads(1)
    with imports(bool(machine["cuda"])):
        while True:
            try:
                token, _, text = worker.pipe.recv_bytes().partition(b"\n")
                payload, descriptor = json.loads(text), moved(recv_handle(worker.pipe))
            except (EOFError, OSError):  # the supervisor is gone
                leave(0)
            for file in files.stack, files.printed:  # left by the previous task
                os.truncate(file, 0)
            is_check = "id" in payload
            task = from_json(Case, payload) if is_check else from_json(Sought, payload)
            code, again = 0, True
            stays = _load(worker, task) if isinstance(task, Case) else None
            if stays is None:
                child = os.fork()
                if child == 0:
                    _do_alone(worker, task, Sender(descriptor, token.decode()))
                os.close(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            else:
                again = _do(worker, task, Sender(descriptor, token.decode()), stays)
                os.close(descriptor)
                use_threads(1)
            messages.send("ended", [code, not again or (stays is None and _has_children())])


def _do_alone(worker: Worker, task: Case | Sought, sender: Sender) -> NoReturn:
    """Run a task in a forked child."""
    try:
        worker.pipe.close()
        _with_parent()
        _do(worker, task, sender, None)
    except BaseException:  # the pipe is closed: no message can be sent
        leave(PIPE_CLOSED)
    leave(0)


def _do(worker: Worker, task: Case | Sought, sender: Sender, stays: str | None) -> bool:
    """Run a task, and return whether the process is fit for another one. `stays`: see `_load`."""
    from gradverify.subject.machine import use_threads

    sender.send("here", getpid())
    use_threads(worker.threads)
    if not worker.watched:
        threading.Thread(target=_watch, args=(worker,), daemon=True).start()
        worker.watched = True
    if isinstance(task, Case):
        return _check(worker, task, sender, stays)
    from gradverify.trial.propose import propose

    with interruptible():
        found = propose(task, lambda: sender.send("begins"))
    sender.send("result", to_json(found))
    return True


def _in_child(compute: Callable[[], object]) -> Any:
    """Call `compute` in a child and return its result (JSON): looking for CUDA devices may leave a
    process that cannot be forked."""
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        write(written, json.dumps(compute()).encode())
        leave(0)
    os.close(written)
    with os.fdopen(read, "rb") as result:
        text = result.read()
    os.waitpid(child, 0)
    return json.loads(text)


def _has_children() -> bool:
    """Return whether processes that a task started still run; on Linux, orphans count too."""
    until = time.monotonic() + LEAVES_WITHIN
    try:
        while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < until:
            time.sleep(0.002)
    except ChildProcessError:
        return False
    return True


def _load(worker: Worker, case: Case) -> str | None:
    """Import the modules that a check names. Return the reason why this process cannot fork
    afterwards, and must run the check itself; None if it can."""
    if cuda_of(case):
        return "uses a CUDA device"
    from gradverify.subject.find import importable
    from gradverify.subject.machine import cannot_fork
    from gradverify.subject.target import load

    with beyond_ctrl_c(), staying(), contextlib.suppress(BaseException):
        if not worker.loaded:
            worker.search.enter_context(importable(case.search))
            worker.loaded = True
        load(case)
    return cannot_fork()


def _check(worker: Worker, case: Case, sender: Sender, stays: str | None) -> bool:
    """Run a check and send its result; return whether the process is fit for another task."""
    from gradverify.running.inline import run_case
    from gradverify.subject.on_cuda import after_a_check

    alone = stays is not None and not cuda_of(case)
    try:
        with beyond_ctrl_c():
            result = run_case(
                case,
                lambda plan: sender.send("plan", to_json(plan)),
                lambda found: sender.send("found", encoded(case, found)),
                prepared=lambda: sender.send("begins"),
                changed=(stays,) if stays is not None and alone else (),
                into=worker.files.printed,
                own_process=stays is None or alone,
                own=worker.own,
            )
    except BaseException as error:  # no exception ends the run
        result = faulty(case, error)
    sender.send("result", encoded(case, short_of_memory(result)))
    return not (alone or after_a_check(case.settings.device))


def _watch(worker: Worker) -> None:
    """End this process when the supervisor ends, in whatever way, and whatever runs here."""
    with contextlib.suppress(EOFError, OSError):
        worker.alive.poll(None)
    leave(0)


def _set_up(setup: Setup, files: Files) -> None:
    """Give this process its own session, which Ctrl-C on the terminal does not reach, redirect
    its streams into files, and set the folder, environment and path of the command."""
    with contextlib.suppress(OSError):
        os.setsid()
    _with_parent()
    close_inherited()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_to_ourselves()
    stack, printed = _opened(files.stack), _opened(files.printed)
    faulthandler.enable(stack)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, stack)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.environ.clear()
    os.environ.update(setup.environment)
    sys.path[:] = setup.path
    os.chdir(setup.folder)


def _opened(path: Path) -> int:
    return moved(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND))


def _out_of_the_way(pipe: Connection) -> Connection:
    """Return the same pipe under a high descriptor."""
    number = high(pipe.fileno())
    pipe.close()
    return Connection(number)


def _with_parent() -> None:
    """On Linux: have this process killed when its parent ends, also where no thread can run, and
    make orphans of its children its own children."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    adopt_orphans()
