"""What a check says to the supervisor while it runs."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from json import dumps
from os import getpid, write
from typing import NoReturn

leave: Callable[[int], NoReturn] = os._exit  # also while a check runs, in which it raises


class Words:
    """What is said of a task, by one thread at a time and by this process only. In the form that
    `Connection.recv_bytes` reads, without the class: checked code may have replaced it."""

    def __init__(self, descriptor: int, task: str = "") -> None:
        self._descriptor = descriptor
        self._task = task
        self._lock = threading.Lock()
        self._process = getpid()

    def say(self, kind: str, payload: object = None) -> None:
        """A child that a check forked, and that returns here, leaves."""
        if getpid() != self._process:
            leave(0)
        data = f"{kind} {self._task}\n{dumps(payload)}".encode()
        data = struct.pack("!i", len(data)) + data
        with self._lock:
            while data:
                data = data[write(self._descriptor, data) :]
