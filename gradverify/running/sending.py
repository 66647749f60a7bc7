"""Send messages from a task to the supervisor."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from json import dumps
from os import getpid, write
from typing import NoReturn

leave: Callable[[int], NoReturn] = os._exit  # the original: while a check runs, os._exit raises


class Sender:
    """The sending end of a `Channel`: one thread sends at a time, and only this process.

    Messages have the form that `Connection.recv_bytes` reads; the class itself is not used, since
    checked code may have replaced it.
    """

    def __init__(self, descriptor: int, task: str = "") -> None:
        self._descriptor = descriptor
        self._task = task
        self._lock = threading.Lock()
        self._process = getpid()

    def send(self, kind: str, payload: object = None) -> None:
        """Send one message. A child that a check forked, and that returns here, exits instead."""
        if getpid() != self._process:
            leave(0)
        data = f"{kind} {self._task}\n{dumps(payload)}".encode()
        data = struct.pack("!i", len(data)) + data
        with self._lock:
            while data:
                data = data[write(self._descriptor, data) :]
