"""Memory that nobody wrote shows: what torch hands out unwritten is filled, and what lies beside a tensor is known.

A dispatch mode, and not torch's own `fill_uninitialized_memory`: that one asks for deterministic algorithms, which
compute other numbers, and knows one filling. Under this mode torch's own operators give the same bits as without it,
but for `prod`. It sees what Python and C++ ask torch for; not what `malloc` returns to a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from gradverify.model.dtypes import TABLE
from gradverify.numerics.function.coordinates import DTYPES, UNITS
from gradverify.subject.disguised import Exchanged
from gradverify.subject.in_python import kernel_of
from gradverify.subject.own_code import wrapped
from gradverify.torch_private import Overload, is_zerotensor, pytree, schema, without_modes

UNWRITTEN = frozenset(f"aten::{name}" for name in (
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
RESIZE = frozenset(("aten::resize_", "aten::resize_as_"))
GUARD = 512     # bytes before or behind a tensor: more than a tile's tail is off, and no alignment changes
MOST = 1 << 26  # bytes of all guarded tensors of a call; what comes later is filled only
LOUD = 255      # of a byte: NaN in every floating dtype, -1 in signed integers
PART = 4        # bytes of a number, at most, that are looked at together: a half of a float64, of a complex64
LARGE_BYTE = 0x47       # of a byte beside a tensor: a number in every floating dtype
PAYLOADS = 0x81, 126    # the lowest byte of the NaN beside a tensor, and how many others: a kernel that reads beside one
                        # tensor and writes beside another carries it along


@dataclass(frozen=True, slots=True)
class Beside:
    """A write that missed its tensor: which one, the first element changed beyond its end (or before its start, negative)."""

    tensor: str
    element: int


@dataclass(frozen=True, slots=True)
class _Room:
    """The bytes of a guarded tensor: `start` before its own, `size` of its own, those of `guard` before and behind."""

    name: str
    memory: Tensor
    start: int
    size: int
    element: int
    guard: Tensor


class Poisoned(Exchanged):
    """Inside, unwritten memory holds NaN, -1 and True (`loud`), or large numbers of both signs, 1 (0 where
    there is no sign) and False.

    The results of operations lie between guard elements where there are `guards`. `handed_out`: did it hand out
    unwritten memory?
    """

    inside = staticmethod(kernel_of)

    def __init__(self, loud: bool, guards: bool = True) -> None:
        super().__init__()
        self._loud, self._guards, self.handed_out = loud, guards, False
        self._blank, self._lost = list[_Room](), False      # handed out unwritten; some of it is not known any more
        self._rooms = dict[int, _Room]()
        self._held = 0

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if not isinstance(func, Overload):      # a higher-order operator
            return wrapped(func, *args, **named)
        declared = schema(func)
        given = [x for x in pytree.tree_leaves((args, named)) if isinstance(x, Tensor)]
        before = _bytes_of(given[0]) if declared.name in RESIZE and _has_memory(given[0]) else 0
        if before:
            self._unguarded(given[0])
        returned = self._called(func, args, named)
        if declared.name in RESIZE:
            self._lost |= self._fill(given[0], before)
        if declared.is_mutable or any(each.alias_info is not None for each in declared.returns):
            return returned
        filled = declared.name in UNWRITTEN and self._fill(returned, 0)
        taken = {x.untyped_storage().data_ptr() for x in given if _has_memory(x)}
        name = str(func).removesuffix(".default").partition(".")[2] or str(func)
        moved = pytree.tree_map(lambda y: self._moved(y, f"the result of {name}", taken), returned)
        if filled:
            self._lost |= moved is returned
            self._blank += [self._rooms[moved.untyped_storage().data_ptr()]] if moved is not returned else []
        return moved

    def guarded(self, x: Tensor, name: str, behind: bool = False) -> Tensor:
        """A copy of a tensor, laid out as it is, between guard elements. They lie outside of its storage, which has as
        many bytes as that of `x`: what reads or rebuilds the whole of it finds the same. `behind`: but for those before
        it, as where it is a part of another tensor."""
        if not self._guards or not _has_memory(x):
            return x
        own, guard = _memory(x), self._guard(x)
        memory = torch.cat((guard, own, guard))
        room = _Room(name, memory, GUARD, len(own), x.element_size(), guard)
        inside = from_dlpack(to_dlpack(memory[0 if behind else GUARD:-GUARD])).untyped_storage()     # keeps it alive
        self._rooms[inside.data_ptr()] = room
        self._held += len(memory)
        offset = int(x.storage_offset()) + behind * GUARD // x.element_size()
        return x.new_empty(0).set_(inside, offset, x.shape, x.stride())

    def _unguarded(self, x: Tensor) -> None:
        """Before a tensor is resized: into memory that can be."""
        if self._rooms.pop(x.untyped_storage().data_ptr(), None) is not None:
            x.set_(_memory(x).clone().untyped_storage(), int(x.storage_offset()), x.shape, x.stride())

    def unwritten(self) -> bool:
        """Does memory that it handed out unwritten still hold what it was filled with, as far as is known?"""
        return self._lost or any(map(self._is_blank, self._blank))

    def _is_blank(self, room: _Room) -> bool:
        own = room.memory[room.start:room.start + room.size].view(-1, min(room.element, PART))
        return bool(((own == LOUD) | ((own == 1) & (room.element == 1))).all(1).any())

    @contextmanager
    def numpys(self) -> Iterator[None]:
        """Inside, what `numpy.empty` and `numpy.empty_like` give is filled too."""
        originals = {name: getattr(np, name) for name in ("empty", "empty_like")}

        def filled(made: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **named: self._filled(made(*args, **named))

        for name, made in originals.items():
            setattr(np, name, filled(made))
        try:
            yield
        finally:
            for name, made in originals.items():
                setattr(np, name, made)

    def _filled(self, array: Any) -> Any:
        if type(array) is np.ndarray and array.dtype.kind in "fciub" and array.size:
            numbers, kind = array.ravel(order="K"), array.dtype.kind
            memory = numbers.view(np.uint8)
            memory[:] = (1 if kind == "b" else LOUD) if self._loud else 0
            if kind == "i" and not self._loud:
                numbers[:] = 1
            if kind in "fc" and not self._loud:
                parts = numbers.view(numbers.real.dtype)
                parts[:] = np.finfo(parts.dtype).max / 4
                parts[1::2] *= -1
            self.handed_out = True
            with without_modes():
                held = torch.from_numpy(memory)
                self._blank.append(_Room("", held, 0, len(memory), array.dtype.itemsize, held[:0]))
        return array

    def beside(self) -> Beside | None:
        """The first guard element that was changed."""
        for room in self._rooms.values():
            behind = (room.memory[room.start + room.size:] != room.guard).nonzero()
            before = (room.memory[:room.start] != room.guard[:room.start]).nonzero()
            if len(behind):
                return Beside(room.name, int(behind[0]) // room.element + 1)
            if len(before):
                return Beside(room.name, (int(before[-1]) - room.start) // room.element)
        return None

    def _guard(self, x: Tensor) -> Tensor:
        """Bytes that stay what they are: NaN of another payload for each tensor, or a large number; -1 or 0 in integers."""
        numbers = x.is_floating_point() or x.is_complex()
        guard = _memory(x).new_full((GUARD,), LOUD if self._loud else LARGE_BYTE * numbers)
        size = x.element_size() // (2 if x.is_complex() else 1)
        if self._loud and numbers and size > 1:
            guard[::size] = PAYLOADS[0] + len(self._rooms) % PAYLOADS[1]
        return guard

    def _moved(self, y: Any, name: str, taken: set[int]) -> Any:
        """A fresh result, moved between guard elements where its memory is all its own."""
        if type(y) is not Tensor or not _has_memory(y) or y.untyped_storage().data_ptr() in taken:
            return y
        whole = y.storage_offset() == 0 and _bytes_of(y) == y.numel() * y.element_size()
        return self.guarded(y, f"{name} {list(y.shape)}") if whole and self._held + _bytes_of(y) <= MOST else y

    def _fill(self, x: Any, start: int) -> bool:
        """Was there anything to fill?"""
        if type(x) is not Tensor or not _has_memory(x) or start >= _bytes_of(x):
            return False
        self.handed_out = True
        memory = _memory(x)[start:]
        if not self._loud and x.dtype in LARGE and start % x.element_size() == 0:
            numbers = memory.view(x.dtype.to_real())
            numbers.fill_(LARGE[x.dtype])
            numbers[1::2].neg_()
        else:
            memory.fill_((1 if x.dtype == torch.bool else LOUD) if self._loud else 0)
            if not self._loud and x.dtype in SIGNED:
                memory[::x.element_size()] = 1
        return True


SIGNED = tuple(DTYPES[name] for name, held in TABLE.items() if held.integers and held.integers[0] < 0)
LARGE = {dtype: torch.finfo(dtype).max / 4 for dtype in UNITS}


def _has_memory(x: Tensor) -> bool:
    """Is it a dense tensor of numbers that lies in memory?"""
    if type(x) not in (Tensor, torch.nn.Parameter) or x.layout is not torch.strided or x.is_meta or x.is_quantized or x.is_nested:
        return False
    return not (x.is_conj() or x.is_neg() or is_zerotensor(x)) and _bytes_of(x) > 0


def _bytes_of(x: Tensor) -> int:
    return x.untyped_storage().nbytes()


def _memory(x: Tensor) -> Tensor:
    """All bytes of the storage."""
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())
