"""The processes that a worker started, as listed in /proc; none on a platform without /proc."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
# States of a process that has ended but was not waited for
DEAD = ("Z", "X")
# Dead processes that count as one running process: they hold a process number and nothing else
DEAD_COUNT = 16
STOPS_WITHIN = 5.0  # seconds for all processes of a family to be found
# PR_SET_CHILD_SUBREAPER of Linux's prctl: orphaned descendants become children of this process
SUBREAPER = 36


class _Process(NamedTuple):
    """The fields of /proc/PID/stat after the name in parentheses, which may contain blanks."""

    state: str
    parent: int
    group: int
    session: int


def family(pid: int, known: Mapping[int, _Process] | None = None) -> frozenset[int]:
    """Return the descendants of a process, and the orphans of its session."""
    known = _known() if known is None else known
    found = {child for child, process in known.items() if process.session == pid}
    while True:
        above = found | {pid}
        more = {child for child, each in known.items() if each.parent in above} - found
        if not more:
            return frozenset(found - {pid})
        found |= more


def sizes(pids: Iterable[int]) -> dict[int, int]:
    """Return, for each of `pids`, how many of the processes that it started still run."""
    known, found = _known(), {}
    for pid in pids:
        states = [known[each].state in DEAD for each in family(pid, known)]
        found[pid] = states.count(False) + states.count(True) // DEAD_COUNT
    return found


def end_family(pid: int, *, alive: bool) -> None:
    """Kill the processes that a process started, and the process itself if it is `alive`.

    All are stopped before the first is killed, whole groups at once, so that none forks or loses
    its parent during the search. A group that other processes belong to as well is not signalled;
    its members are killed one by one.
    """
    stopped = {pid} if alive else set[int]()
    groups = set(stopped)  # a worker leads its own group
    _send(stopped, groups, signal.SIGSTOP)
    until = time.monotonic() + STOPS_WITHIN
    while time.monotonic() < until:
        known = _known()
        members = family(pid, known) | {pid}
        running = {each for each in known if known[each].state not in DEAD}
        fresh = members & running - stopped - {pid}
        if not fresh:
            break
        others = {known[each].group for each in running - members}
        # A worker that has just begun is still in our group, which is not signalled
        groups |= {known[each].group for each in fresh} - others - {0, 1, os.getpgrp()}
        _send(fresh, groups, signal.SIGSTOP)
        stopped |= fresh
    _send(stopped, groups, signal.SIGKILL)


def end_with_caller() -> None:
    """Move this process into its own session, and have it kill the processes that it started when
    it ends: a signal to the caller's whole session does not reach it before."""
    with contextlib.suppress(OSError):
        os.setsid()
    own = os.getpid()

    def end() -> None:
        if os.getpid() == own:  # not in a forked child
            end_family(own, alive=False)

    atexit.register(end)


def adopt_orphans() -> None:
    """On Linux, make orphaned descendants children of this process instead of the system's init."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def end_orphans(server: int, workers: Collection[int]) -> None:
    """Kill the processes that ended workers left to `server`, which they were forked from: all its
    children in other sessions but `workers`."""
    known = _known()
    own = known[server].session if server in known else None
    for pid, process in known.items():
        if (
            process.parent == server
            and process.session != own
            and pid not in workers
            and process.state not in DEAD
        ):
            end_family(pid, alive=True)


def _send(pids: Iterable[int], groups: Iterable[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _known() -> dict[int, _Process]:
    known = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        known[int(folder.name)] = _Process(fields[0], *map(int, fields[1:4]))
    return known
