"""The inside of a worker process: imports what checks name, computes nothing, and forks a child for
each check."""

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
from gradverify.model.interrupt import interruptible, unheard
from gradverify.model.proposal import Sought
from gradverify.running.family import adopt_orphans
from gradverify.running.inline import cuda_of, staying
from gradverify.running.lost import encoded, faulty, short_of_memory
from gradverify.running.server import let_go
from gradverify.running.supervisor import UNHEARD, Files, high, keep_to_ourselves, moved
from gradverify.running.words import Words, leave

LEAVES_WITHIN = 0.1  # seconds for the processes that a check started to end after it
DEATH_SIGNAL = 1  # of prctl: how this process ends with its own parent


class Setup(NamedTuple):
    """How the process that runs the command is: folder, environment, `sys.path`; `threads` of
    torch, None: its own choice."""

    folder: str
    environment: Mapping[str, str]
    path: tuple[str, ...]
    threads: int | None


@dataclass
class Worker:
    """A process that has imported what some tasks name. `threads`: of torch, in a child; `search`:
    where the names of the spec are looked for, once something is `loaded`."""

    pipe: Connection
    alive: Connection
    files: Files
    threads: int
    search: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    loaded: bool = False
    watched: bool = False


def serve(words: Connection, alive: Connection, setup: Setup, files: Files) -> NoReturn:
    """Task after task, each in a child, until the supervisor is gone. What a task does to its
    process nobody else meets: there is nothing to put back. A child is forked before anything is
    computed: threads of OpenMP or autograd would be missing in it, and waited for."""
    worker = Worker(_out_of_the_way(words), _out_of_the_way(alive), files, 1)
    _settle(setup, files)
    own = Words(worker.pipe.fileno())
    from gradverify.running.inline import devices
    from gradverify.subject.machine import imports, threads, use_threads

    if setup.threads is not None:
        use_threads(setup.threads)
    worker.threads = threads()
    machine = _in_child(lambda: to_json(devices()))
    own.say("ready", machine)
    use_threads(1)
    with imports(bool(machine["cuda"])):
        while True:
            try:
                token, _, text = worker.pipe.recv_bytes().partition(b"\n")
                payload, descriptor = json.loads(text), moved(recv_handle(worker.pipe))
            except (EOFError, OSError):  # the supervisor is gone
                leave(0)
            for file in files.stack, files.printed:  # of the task before
                os.truncate(file, 0)
            is_check = "id" in payload
            task = from_json(Case, payload) if is_check else from_json(Sought, payload)
            code, again = 0, True
            stays = _load(worker, task) if isinstance(task, Case) else None
            if stays is None:
                child = os.fork()
                if child == 0:
                    _do_alone(worker, task, Words(descriptor, token.decode()))
                os.close(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            else:
                again = _do(worker, task, Words(descriptor, token.decode()), stays)
                os.close(descriptor)
                use_threads(1)
            own.say("ended", [code, not again or (stays is None and _has_children())])


def _do_alone(worker: Worker, task: Case | Sought, saying: Words) -> NoReturn:
    try:
        worker.pipe.close()
        _with_parent()
        _do(worker, task, saying, None)
    except BaseException:  # the pipe is closed: nobody hears of it
        leave(UNHEARD)
    leave(0)


def _do(worker: Worker, task: Case | Sought, saying: Words, stays: str | None) -> bool:
    """Does it leave a process in which another one can run?"""
    from gradverify.subject.machine import use_threads

    saying.say("here", getpid())
    use_threads(worker.threads)
    if not worker.watched:
        threading.Thread(target=_watch, args=(worker,), daemon=True).start()
        worker.watched = True
    if isinstance(task, Case):
        return _check(worker, task, saying, stays)
    from gradverify.trial.propose import propose

    with interruptible():
        found = propose(task, lambda: saying.say("begins"))
    saying.say("result", to_json(found))
    return True


def _in_child(ask: Callable[[], object]) -> Any:
    """The answer of a child: looking for CUDA devices may leave a process that cannot be forked."""
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        write(written, json.dumps(ask()).encode())
        leave(0)
    os.close(written)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def _has_children() -> bool:
    """Do processes that a task started go on? On Linux also those that lost their parents."""
    until = time.monotonic() + LEAVES_WITHIN
    try:
        while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < until:
            time.sleep(0.002)
    except ChildProcessError:
        return False
    return True


def _load(worker: Worker, case: Case) -> str | None:
    """Imports what a check names. Why this process cannot fork then, and does the check itself;
    None where it can."""
    if cuda_of(case):
        return "uses a CUDA device"
    from gradverify.subject.find import importable
    from gradverify.subject.machine import cannot_fork
    from gradverify.subject.target import load

    with unheard(), staying(), contextlib.suppress(BaseException):
        if not worker.loaded:
            worker.search.enter_context(importable(case.search))
            worker.loaded = True
        load(case)
    return cannot_fork()


def _check(worker: Worker, case: Case, saying: Words, stays: str | None) -> bool:
    from gradverify.running.inline import run_case
    from gradverify.subject.on_cuda import after_a_check

    alone = stays is not None and not cuda_of(case)
    try:
        with unheard():
            result = run_case(
                case,
                lambda plan: saying.say("plan", to_json(plan)),
                lambda found: saying.say("found", encoded(case, found)),
                prepared=lambda: saying.say("begins"),
                changed=(stays,) if stays is not None and alone else (),
                into=worker.files.printed,
                own_process=stays is None or alone,
            )
    except BaseException as error:  # none of them ends the run
        result = faulty(case, error)
    saying.say("result", encoded(case, short_of_memory(result)))
    return not (alone or after_a_check(case.settings.device))


def _watch(worker: Worker) -> None:
    """Ends this process with the supervisor, however that ends, and whatever runs here."""
    with contextlib.suppress(EOFError, OSError):
        worker.alive.poll(None)
    leave(0)


def _settle(setup: Setup, files: Files) -> None:
    """A session of its own, in which Ctrl-C on the terminal is not heard; streams into files; the
    folder, environment and path of the command."""
    with contextlib.suppress(OSError):
        os.setsid()
    _with_parent()
    let_go()
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
    """The same pipe under a high number."""
    number = high(pipe.fileno())
    pipe.close()
    return Connection(number)


def _with_parent() -> None:
    """Linux: killed when the process that forked it ends, also where no thread can run; orphans of
    its children become its own."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    adopt_orphans()
