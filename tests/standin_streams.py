"""CUDA streams that are not there: what is asked of a busy one reaches the memory when it is waited for, and other streams see the memory without it.

An operation on a busy stream computes from what that stream will find, and what it writes is held back: the memory keeps what stood there, and new
memory holds numbers of nobody. Operations on another stream, and whoever reads memory by its address, see just that. A stream is busy from `_sleep`
until the host waits for it, or for a result of its (`.item()`); streams that wait for it are busy too.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

NOBODYS = struct.pack("d", -7.25)
WAITING = ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select")
EMPTY = ("aten::empty", "aten::new_empty")


class Stream:
    """`held_back`: what it will have written, and when that was asked for: by storage. What it waits for is its own future too."""

    def __init__(self, streams: Streams, device: Any) -> None:
        self.streams, self.device = streams, device
        self.busy = False
        self.held_back = dict[int, tuple[int, Any, bytes]]()

    def query(self) -> bool:
        return not self.busy

    def synchronize(self) -> None:
        for key, (time, storage, content) in self.held_back.items():
            if time > self.streams.written.get(key, 0):
                self.streams.written[key] = time
                _write(storage, content)
        self.busy, self.held_back = False, {}

    def wait_stream(self, other: Stream) -> None:
        self.busy = self.busy or other.busy
        self.held_back |= {key: each for key, each in other.held_back.items() if each > self.held_back.get(key, (0,))}


class Streams:
    """`parts`: the tensors with memory of their own that one is made of."""

    def __init__(self, parts: Callable[[Tensor], Sequence[Tensor]], device: Any) -> None:
        self._parts = parts
        self.default = self.current = Stream(self, device)
        self.made = [self.default]
        self.written = dict[int, int]()     # by storage, when what reached it last was asked for
        self.time = 0

    def new(self, device: Any = None) -> Stream:
        self.made.append(Stream(self, device))
        return self.made[-1]

    def sleep(self, cycles: int) -> None:
        assert isinstance(cycles, int) and cycles > 0
        self.current.busy = True

    def synchronize(self, device: Any = None) -> None:
        for stream in self.made:
            stream.synchronize()

    @contextmanager
    def on(self, stream: Stream | None) -> Iterator[None]:
        before, self.current = self.current, stream or self.current
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def there(self) -> Iterator[None]:
        """Inside, torch has these."""
        answers = {"Stream": self.new, "default_stream": lambda device=None: self.default, "current_stream": lambda device=None: self.current,
                   "stream": self.on, "_sleep": self.sleep, "synchronize": self.synchronize}
        with ExitStack() as stack:
            for name, answer in answers.items():
                stack.enter_context(patch.object(torch.cuda, name, answer))
            stack.enter_context(patch.object(Tensor, "record_stream", lambda x, stream: None))
            yield

    def ran(self, func: Any, args: Any, kwargs: Any, given: Sequence[Tensor], on: bool) -> Any:
        """An operation on the current stream; `given`: the tensors of the device among its arguments, `on`: what it returns lies there."""
        stream = self.current
        if stream.busy and given and (func._schema.name in WAITING or not on):
            stream.synchronize()
        return self._behind(stream, func, args, kwargs, self._storages(given)) if stream.busy and on else func(*args, **kwargs)

    def _behind(self, stream: Stream, func: Any, args: Any, kwargs: Any, given: dict[int, Any]) -> Any:
        """The operation as the busy stream will do it; the memory stays as it is."""
        self.time += 1
        now = {key: _read(storage) for key, storage in given.items()}
        for key in given.keys() & stream.held_back.keys():
            _write(*stream.held_back[key][1:])
        before = {key: _read(storage) for key, storage in given.items()}
        try:
            returned = func(*args, **kwargs)
        finally:
            after = {key: _read(storage) for key, storage in given.items()}
            for key, storage in given.items():
                if after[key] != before[key]:
                    stream.held_back[key] = self.time, storage, after[key]
                _write(storage, now[key])
        for key, storage in self._storages(returned).items():
            if key not in given:
                if not func._schema.name.startswith(EMPTY):
                    stream.held_back[key] = self.time, storage, _read(storage)
                _write(storage, NOBODYS * (storage.nbytes() // 8) + bytes(storage.nbytes() % 8))
        return returned

    def _storages(self, of: Any) -> dict[int, Any]:
        parts = [part for x in pytree.tree_leaves(of) if isinstance(x, Tensor) for part in self._parts(x)]
        return {part.untyped_storage()._cdata: part.untyped_storage() for part in parts}


def _read(storage: Any) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def _write(storage: Any, content: bytes) -> None:
    if content:
        ctypes.memmove(storage.data_ptr(), content, len(content))
