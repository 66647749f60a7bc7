"""Does a result depend on memory that nobody wrote, or a call write beside its tensors? Calls with poisoned memory tell.

The first call of a check is one with guard elements around its inputs, cotangents and results of operations, and NaN in
all memory that is handed out unwritten. Where it got such memory, or differs from the base call, another one follows with large numbers
there. Only where these two differ, each is made twice more: what then depends on the filling alone was left unwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from gradverify.model.dtypes import TABLE
from gradverify.numerics.function.coordinates import DTYPES, UNITS, flat_real
from gradverify.subject.ambient import ambient, left_as_found
from gradverify.subject.differentiable import Gradients, Graph, copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.forms import comparable, is_plain
from gradverify.subject.in_python import kernel_of
from gradverify.subject.own_code import wrapped
from gradverify.subject.rounding import Exchanged
from gradverify.subject.snapshot import alike
from gradverify.torch_private import Overload, is_zerotensor, pytree, schema

if TYPE_CHECKING:
    from gradverify.subject.base_call import BaseCall


# ---- Memory that nobody wrote shows: what torch hands out unwritten is filled, and what lies
# beside a tensor is known
UNWRITTEN = frozenset(f"aten::{name}" for name in (
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
RESIZE = frozenset(("aten::resize_", "aten::resize_as_"))
GUARD = 512     # bytes before or behind a tensor: more than a tile's tail is off, and no alignment changes
MOST = 1 << 26  # bytes of all guarded tensors of a call; what comes later is filled only
LOUD = 255      # of a byte: NaN in every floating dtype, -1 in signed integers
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
    """The bytes of a guarded tensor, those of `guard` before and behind its own."""

    name: str
    memory: Tensor
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
        self._rooms = dict[int, _Room]()
        self._held = 0

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if not isinstance(func, Overload):      # a higher-order operator
            return wrapped(func, *args, **named)
        declared = schema(func)
        given = [x for x in pytree.tree_leaves((args, named)) if isinstance(x, Tensor)]
        before = _bytes_of(given[0]) if declared.name in RESIZE and _has_memory(given[0]) else 0
        returned = self._called(func, args, named)
        if declared.name in RESIZE:
            self._fill(given[0], before)
        if declared.is_mutable or any(each.alias_info is not None for each in declared.returns):
            return returned
        if declared.name in UNWRITTEN:
            self._fill(returned, 0)
        taken = {x.untyped_storage().data_ptr() for x in given if _has_memory(x)}
        name = str(func).removesuffix(".default").partition(".")[2] or str(func)
        return pytree.tree_map(lambda y: self._moved(y, f"the result of {name}", taken), returned)

    def guarded(self, x: Tensor, name: str) -> Tensor:
        """A copy of a tensor, laid out as it is, between guard elements. They lie outside of its storage, which has as
        many bytes as that of `x`: what reads or rebuilds the whole of it finds the same."""
        if not self._guards or not _has_memory(x):
            return x
        own, guard = _memory(x), self._guard(x)
        memory = torch.cat((guard, own, guard))
        inside = from_dlpack(to_dlpack(memory[GUARD:-GUARD])).untyped_storage()     # keeps it alive
        self._rooms[inside.data_ptr()] = _Room(name, memory, x.element_size(), guard)
        self._held += len(memory)
        return x.new_empty(0).set_(inside, int(x.storage_offset()), x.shape, x.stride())

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
        return array

    def beside(self) -> Beside | None:
        """The first guard element that was changed."""
        for room in self._rooms.values():
            before, behind = ((part != room.guard).nonzero() for part in (room.memory[:GUARD], room.memory[-GUARD:]))
            if len(behind):
                return Beside(room.name, int(behind[0]) // room.element + 1)
            if len(before):
                return Beside(room.name, (int(before[-1]) - GUARD) // room.element)
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

    def _fill(self, x: Any, start: int) -> None:
        if type(x) is not Tensor or not _has_memory(x) or start >= _bytes_of(x):
            return
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


# ---- Does a result depend on memory that nobody wrote, or a call write beside its tensors?
STEADY = 2.0**10    # roundings by which two calls in the same way may differ, as atomic adds do


@dataclass
class Probe:
    """One forward, and as far as it came one backward, with poisoned memory.

    `graph`: of the forward; `states`: what the generators would draw after it; `places`: of the compared outputs among
    all. `error`: what it raised.
    """

    mode: Poisoned
    graph: Graph | None = None
    states: tuple[object, ...] = ()
    places: tuple[int, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    gradients: Gradients | None = None
    error: UserCodeError | None = None

    @property
    def results(self) -> tuple[Tensor | None, ...]:
        """What it gave."""
        return (*self.outputs, *(self.gradients or ()))

    @property
    def beside(self) -> Beside | None:
        """Where it wrote beside a tensor."""
        return self.mode.beside()


@dataclass(frozen=True, slots=True)
class Depends:
    """What the filling of unwritten memory changes: an output (by its place among all) or the gradient of an input; how
    many of its real numbers, the first of them, and what it is with NaN and with large numbers. `raised`: in the place
    of all that, what one of the two raises."""

    tensor: Tensor
    output: int | None = None
    input: int | None = None
    count: int = 0
    size: int = 0
    first: int = 0
    numbers: tuple[float, float] = (0.0, 0.0)
    raised: UserCodeError | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What poisoned calls show: a write that missed, in forward or in `backward`; what depends on unwritten memory, of
    which some was `allocated`. Where nothing is wrong with them they count as calls like others: `repeats` are their
    gradients for the base cotangents; `elsewhere` the outputs of a call whose generators started elsewhere, and what they would draw after it;
    `earliest` the outputs of the first call of all, where they differ from those after it."""

    beside: Beside | None = None
    backward: bool = False
    depends: tuple[Depends, ...] = ()
    allocated: bool = False
    repeats: tuple[Gradients, ...] = ()
    elsewhere: tuple[tuple[Tensor, ...], tuple[object, ...]] | None = None
    earliest: tuple[Tensor, ...] | None = None


def measured(base: BaseCall) -> Memory:
    """Raises UserCodeError where forward raises."""
    return _Calls(base).memory()


class _Calls:
    """The poisoned calls beside a base call."""

    def __init__(self, base: BaseCall) -> None:
        self._base, self._subject = base, base.subject
        self._unit = max((UNITS[x.dtype] for x in base.subject.inputs), default=0.0)
        self._pulls = False     # the base call is known, and there is something to pull back
        self._guards = True

    def memory(self) -> Memory:
        first, raised, base = self._forward(True), None, self._base
        if first.beside is not None:
            return Memory(beside=first.beside)
        writes = self._subject.writes
        try:
            pulls = base.forward.checked and (base.forward.nodes or first.mode.handed_out)     # a backward of torch's own writes all it returns
            self._pulls = bool(pulls) and all(bool(y.isfinite().all()) for y in base.outputs)
            if self._subject.writes != writes:      # into its inputs: from now on it gets clones
                first = self._forward(True)
        except UserCodeError as error:
            if not first.mode.handed_out:
                raise
            raised = error
        if self._pulls:
            self._backward(first)
            if first.beside is not None:
                return Memory(beside=first.beside, backward=True)
        if raised is None and first.error is not None and (first.graph is None or base.backward.error is None):
            self._guards = False        # as what gives its memory back refuses, which lies within another one's
            first = self._again(True)
        allocated, quiet = first.mode.handed_out, self._again(False) if self._doubtful(first, raised is not None) else None
        if quiet is not None and not self._agree(first, quiet):
            depending = self._depends(quiet)
            if depending:
                return Memory(depends=depending, allocated=allocated)
        if raised is not None:
            raise raised
        if first.error is not None:
            return Memory(allocated=allocated)
        random = base.forward.random
        same = random or alike(first.outputs, base.outputs)
        found = Memory(allocated=allocated, elsewhere=(first.outputs if random else base.outputs, first.states) if same else None)
        if random:
            return found
        if not close(first.outputs, base.outputs, self._unit):
            later = quiet is not None and quiet.error is None and close(quiet.outputs, base.outputs, self._unit)
            return replace(found, earliest=first.outputs if later else None)
        gradients = base.backward.gradients if self._pulls else ()
        calls = [probe.gradients for probe in (first, quiet) if probe is not None and probe.gradients is not None]
        if not all(close(each, gradients, self._unit) for each in calls) and self._agree(self._again(True), first):
            return found        # their way makes them others, and not their number
        return replace(found, repeats=tuple(each for each in calls if alike(each, gradients) or not close(each, gradients, self._unit)))

    def _doubtful(self, first: Probe, raised: bool) -> bool:
        """Is another filling to be tried?"""
        if raised or first.error is not None or first.mode.handed_out:
            return True
        if self._base.forward.random:       # the generators started elsewhere
            return not all(y is None or bool(y.isfinite().all()) for y in first.results)
        gradients = self._base.backward.gradients if self._pulls else ()
        return not close(first.results, (*self._base.outputs, *(gradients if _can_be_compared(gradients) else ())), self._unit)

    def _depends(self, quiet: Probe) -> tuple[Depends, ...]:
        """In an order in which no counter of calls that comes round keeps step with the filling. Without NaN it may be
        chance, of a function that draws: then in more calls."""
        loud = [self._again(True) for _ in range(2)]
        quiets = [quiet, self._again(False)]
        found = depends(loud, quiets, self._unit)
        if any(each.raised is None and not isnan(each.numbers[0]) for each in found):
            for again in (True, True, False, True, False, False, True, False):
                (loud if again else quiets).append(self._again(again))
            found = depends(loud, quiets, self._unit)
        return found

    def _agree(self, some: Probe, others: Probe) -> bool:
        return some.error is None and others.error is None and close(some.results, others.results, self._unit)

    def _again(self, loud: bool) -> Probe:
        probe = self._forward(loud)
        if self._pulls:
            self._backward(probe)
        return probe

    def _forward(self, loud: bool) -> Probe:
        """A forward."""
        subject, wanted, probe = self._subject, self._base.settings.outputs, Probe(Poisoned(loud, self._guards))
        named = zip(subject.differentiable, subject.leaves(), strict=True)
        leaves = [probe.mode.guarded(leaf.detach(), argument.name).requires_grad_() for argument, leaf in named]

        def call() -> Graph:
            with subject.fenced(probe.mode.guarded), probe.mode.numpys(), probe.mode:
                return Graph(tuple(leaves), subject.probed(leaves))

        with left_as_found(ambient()):
            try:
                probe.graph, probe.states = subject.seeded_elsewhere(lambda: (call(), subject.states()))
            except UserCodeError as error:
                probe.error = error
                return probe
        flat = probe.graph.called.outputs
        probe.places = tuple(place for place, y in enumerate(flat)
                             if comparable(y) and y.requires_grad and (wanted is None or place in wanted))
        probe.outputs = tuple(flat[place].detach().clone() for place in probe.places)
        return probe

    def _backward(self, probe: Probe) -> None:
        """The backward of its graph."""
        if probe.graph is None:
            return
        given = [probe.mode.guarded(v, "grad_output") for v in self._base.cotangents("base")]
        with left_as_found(ambient()):
            try:
                with probe.mode.numpys(), probe.mode:
                    gradients = self._base.function.gradients(probe.graph, given, fresh=True)
                probe.gradients = copied(gradients) if _can_be_compared(gradients) else None
            except UserCodeError as error:
                probe.error = error


def _can_be_compared(gradients: Gradients) -> bool:
    """Are they all plain tensors? Others are for the rules on what backward returns."""
    return all(gradient is None or is_plain(gradient) for gradient in gradients)


def depends(loud: Sequence[Probe], quiet: Sequence[Probe], unit: float) -> tuple[Depends, ...]:
    """What depends on the filling alone: equal in all calls with one, and another one in those with the other."""
    raised = [{probe.error is not None for probe in both} for both in (loud, quiet)]
    if raised in ([{True}, {False}], [{False}, {True}]):
        return (Depends(torch.empty(0), raised=next(probe.error for probe in (*loud, *quiet) if probe.error is not None)),)
    if raised != [{False}, {False}]:
        return ()
    if not all(close(probe.results, both[0].results, unit) for both in (loud, quiet) for probe in both[1:]):
        return ()
    one, other = loud[0], quiet[0]
    found = list[Depends]()
    for place, a, b in zip(one.places, one.outputs, other.outputs, strict=False):
        found += _apart(a, b, unit, Depends(a, output=place))
    for place, (g, h) in enumerate(zip(one.gradients or (), other.gradients or (), strict=False)):
        if g is not None and h is not None:
            found += _apart(g, h, unit, Depends(g, input=place))
    return tuple(found)


def _apart(one: Tensor, other: Tensor, unit: float, at: Depends) -> list[Depends]:
    """What is clearly another number in one than in the other."""
    if one.shape != other.shape:
        return []
    a, b = flat_real(one), flat_real(other)
    size = a.nan_to_num(0.0, 0.0, 0.0).abs().max() if a.numel() else 0.0
    roundings = STEADY * max(unit, UNITS.get(one.dtype, 0.0)) * size
    far = ((a - b).abs() > roundings) | (a.isnan() != b.isnan()) | (a.isinf() != b.isinf())
    if not bool(far.any()):
        return []
    first = int(far.nonzero()[0])
    return [replace(at, count=int(far.sum()), size=a.numel(), first=first, numbers=(float(a[first]), float(b[first])))]


def close(some: Sequence[Tensor | None], others: Sequence[Tensor | None], unit: float) -> bool:
    """Do two calls give the same, but for what a sum in another order does?"""
    if alike(some, others):
        return True
    if len(some) != len(others) or any((a is None) != (b is None) for a, b in zip(some, others, strict=True)):
        return False
    pairs = [(a, b) for a, b in zip(some, others, strict=True) if a is not None and b is not None]
    return not any(a.shape != b.shape or _apart(a, b, unit, Depends(a)) for a, b in pairs)
