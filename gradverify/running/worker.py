"""The inside of a worker process: takes cases, one after the other, and sends back what came of them."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from gradverify.model.case import Case
from gradverify.model.codec import from_json, to_json
from gradverify.model.event import Plan
from gradverify.model.interrupt import unheard
from gradverify.model.result import CaseResult
from gradverify.running.descriptors import high, keep_to_ourselves, moved
from gradverify.running.family import adopt_orphans
from gradverify.running.instruments import measured, not_started, too_little, within
from gradverify.running.process import Files
from gradverify.running.server import let_go
from gradverify.running.unrun import encoded, faulty

TELLS_EVERY = 0.25          # seconds between two words on how many calls were made
DEATH_SIGNAL = 1            # of prctl: how this process ends with its own parent
leave: Callable[[int], NoReturn] = os._exit


@dataclass(frozen=True)
class Setup:
    """How the process that runs the command is: folder, environment, `sys.path`; `threads` of torch, None: its own choice;
    `memory`: bytes, None for no limit; `pictures`: failing checks bring those of a report with them."""

    folder: str
    environment: Mapping[str, str]
    path: tuple[str, ...]
    threads: int | None
    memory: int | None = None
    pictures: bool = False


class Words:
    """What is said to the supervisor, by one thread at a time and by this process only."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock, self._process = pipe, threading.Lock(), os.getpid()

    def say(self, kind: str, payload: object = None) -> None:
        """A child that a check forked, and that returns here, leaves."""
        if os.getpid() != self._process:
            leave(0)
        with self._lock:
            self._pipe.send_bytes(kind.encode() + b"\n" + json.dumps(payload).encode())


def serve(words: Connection, alive: Connection, setup: Setup, files: Files) -> None:
    """The life of a worker: set up, then case after case until one leaves something changed, or the supervisor is gone."""
    pipe, saying, calls = entered(words, alive, setup, files)
    little = too_little(setup.memory)
    if little is not None:      # nor is there any to import and to look at
        _refuse_all(pipe, saying, little)
    from gradverify.subject import shared
    from gradverify.subject.on_cuda import after_a_check

    before = shared.look()
    while True:
        case = _next_case(pipe)
        result = _verified(case, saying, calls, files, lambda: shared.switched(before, (shared.THREADS, shared.SIGNALS)), setup.pictures)
        changed = shared.changes(before, shared.look())
        retires = bool(changed) or shared.computes_otherwise(result.changed) or after_a_check(case.settings.device)
        saying.say("last" if retires else "result", encoded(case, measured(within(result, setup.memory), changed)))
        if retires:
            leave(0)


def _next_case(pipe: Connection) -> Case:
    """Ends the process where the supervisor is gone."""
    try:
        return from_json(Case, json.loads(pipe.recv_bytes()))
    except (EOFError, OSError):
        leave(0)


def _refuse_all(pipe: Connection, saying: Words, message: str) -> NoReturn:
    """Says of every case that there is no memory for a worker."""
    while True:
        saying.say("result", to_json(not_started(_next_case(pipe), message)))


def entered(words: Connection, alive: Connection, setup: Setup, files: Files) -> tuple[Connection, Words, _Calls]:
    """Sets a worker up until it can take a task, and says so: the pipe that tasks come by, and what it speaks through."""
    pipe, alive = _out_of_the_way(words), _out_of_the_way(alive)
    _settle(setup, files)
    saying = Words(pipe)
    calls = _Calls(saying)
    threading.Thread(target=_end_with_supervisor, args=(alive, calls), daemon=True).start()
    from gradverify.running.inline import devices

    _divide(setup)
    saying.say("ready", to_json(devices()))
    return pipe, saying, calls


def _verified(case: Case, saying: Words, calls: _Calls, files: Files, left: Callable[[], tuple[str, ...]],
              pictures: bool) -> CaseResult:
    from gradverify.running.inline import run_case

    try:
        with unheard():
            return run_case(case, calls.planned, prepared=lambda: saying.say("begins"), left=left, into=Path(files.printed), pictures=pictures)
    except BaseException as error:      # none of them ends the run
        return faulty(case, error)
    finally:
        calls.forget()


class _Calls:
    """How many calls the running comparison has made, told while it runs."""

    def __init__(self, saying: Words) -> None:
        self._saying, self._told = saying, -1
        self._made: Callable[[], int] | None = None

    def planned(self, plan: Plan, made: Callable[[], int]) -> None:
        self._saying.say("plan", to_json(plan))
        self._made, self._told = made, -1

    def forget(self) -> None:
        self._made = None

    def tell(self) -> None:
        made = self._made
        count = made() if made else -1
        if count > self._told:
            self._told = count
            self._saying.say("calls", count)


def _end_with_supervisor(alive: Connection, calls: _Calls) -> None:
    """This process ends with the supervisor, however that ends, and whatever runs here."""
    while True:
        try:
            if alive.poll(TELLS_EVERY):
                leave(0)
            calls.tell()
        except (EOFError, OSError):
            leave(0)


def _settle(setup: Setup, files: Files) -> None:
    """A session of its own, in which Ctrl-C on the terminal is not heard; streams into files; the folder, environment and path of the command."""
    with contextlib.suppress(OSError):
        os.setsid()
    _with_parent()
    let_go()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
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


def _opened(path: str) -> int:
    return moved(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND))


def _out_of_the_way(pipe: Connection) -> Connection:
    """The same pipe under a high number."""
    number = high(pipe.fileno())
    pipe.close()
    return Connection(number)


def _with_parent() -> None:
    """Linux: killed when the process that forked it ends, also where no thread can run; orphans of its children become its own."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    adopt_orphans()


def _divide(setup: Setup) -> None:
    from gradverify.subject.machine import use_threads

    if setup.threads is not None:
        use_threads(setup.threads)
    if setup.memory is not None:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = setup.memory if most == resource.RLIM_INFINITY else min(setup.memory, most)     # a limit that is there already may be lower
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
