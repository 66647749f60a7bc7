"""The processes that a worker started, by what /proc says; none where there is no /proc."""

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
# States of a process that has ended, and that nobody has asked for
DEAD = ("Z", "X")
# So many of these count as one: they hold a number and nothing else
DEAD_COUNT = 16
STOPS_WITHIN = 5.0  # seconds for all processes of a family to be found
# Of Linux's prctl: whoever loses its parent below this process becomes its child
SUBREAPER = 36


class _Process(NamedTuple):
    """As /proc/PID/stat has it behind the name in parentheses, which may hold blanks."""

    state: str
    parent: int
    group: int
    session: int


def family(pid: int, known: Mapping[int, _Process] | None = None) -> frozenset[int]:
    """Its descendants, and those of its session that have lost their parents."""
    known = _known() if known is None else known
    found = {child for child, process in known.items() if process.session == pid}
    while True:
        above = found | {pid}
        more = {child for child, each in known.items() if each.parent in above} - found
        if not more:
            return frozenset(found - {pid})
        found |= more


def sizes(pids: Iterable[int]) -> dict[int, int]:
    """How many processes each of these has started that still run."""
    known, found = _known(), {}
    for pid in pids:
        states = [known[each].state in DEAD for each in family(pid, known)]
        found[pid] = states.count(False) + states.count(True) // DEAD_COUNT
    return found


def end_family(pid: int, *, alive: bool) -> None:
    """Kills what a process started, and the process itself if it is `alive`.

    All are stopped before the first is killed, whole groups at once: none forks, or loses its
    parent, while the others are looked for. A group that others belong to as well is left alone,
    and its members are ended one by one.
    """
    stopped = {pid} if alive else set[int]()
    groups = set(stopped)  # a worker leads a group of its own
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
        # A worker that has just begun is still of ours
        groups |= {known[each].group for each in fresh} - others - {0, 1, os.getpgrp()}
        _send(fresh, groups, signal.SIGSTOP)
        stopped |= fresh
    _send(stopped, groups, signal.SIGKILL)


def end_with_caller() -> None:
    """This process leaves its caller's session, so that what kills all of that together leaves it
    to kill, when it ends, whatever it started."""
    with contextlib.suppress(OSError):
        os.setsid()
    own = os.getpid()

    def end() -> None:
        if os.getpid() == own:  # and no child that was forked from it
            end_family(own, alive=False)

    atexit.register(end)


def adopt_orphans() -> None:
    """Linux: what processes below this one leave behind when they end becomes this one's own child,
    and not the system's."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def end_orphans(server: int, workers: Collection[int]) -> None:
    """Kills what workers that have ended left to the process that they were forked from: of its
    children in other sessions, all but `workers`."""
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
