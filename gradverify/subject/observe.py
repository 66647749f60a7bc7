"""The base call, watched: one forward and one backward from which many rules read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.graph import RawReturn, function_classes, is_handwritten, tapped
from gradverify.subject.machine import random_states
from gradverify.subject.snapshot import Snapshot
from gradverify.subject.subject import Argument, Subject


@dataclass(frozen=True, slots=True)
class ForwardSeen:
    """The base forward. `outputs` are all flattened ones; `checked` the places of the compared ones; `detached` of floating ones
    without a graph; `classes` the custom Functions in the graph; `handwritten`: somebody's own backward is in it, in Python or in C++;
    `written` the arguments that the call changed; `random`: it drew from a global generator."""

    leaves: tuple[Tensor, ...]
    outputs: tuple[Any, ...]
    checked: tuple[int, ...]
    detached: tuple[int, ...]
    classes: tuple[type, ...]
    written: tuple[str, ...]
    packed: int
    handwritten: bool
    random: bool


@dataclass(frozen=True, slots=True)
class BackwardSeen:
    """The base backward, for a dense random cotangent. `error`: what it raised; `damaged`: (output, flat index, before, after) of a
    cotangent that backward wrote to; `unpacked`: how many saved tensors it asked for."""

    cotangents: tuple[Tensor, ...]
    gradients: Gradients
    raw: tuple[RawReturn, ...]
    error: UserCodeError | None
    damaged: tuple[tuple[int, tuple[int, float, float] | None], ...]
    unpacked: int


class Saved:
    """Counts the tensors that forward packs for backward, and those that backward unpacks."""

    def __init__(self) -> None:
        self.packed, self.unpacked = 0, 0

    def pack(self, tensor: Tensor) -> Tensor:
        self.packed += 1
        return tensor

    def unpack(self, tensor: Tensor) -> Tensor:
        self.unpacked += 1
        return tensor


def observe_forward(subject: Subject, wanted: Sequence[int] | None, saved: Saved) -> ForwardSeen:
    """One forward: what it returns, writes, packs and leaves in the graph. `wanted`: the outputs the spec asks for, None for all.

    Raises UserCodeError (GV002).
    """
    others = [a for a in subject.arguments if a.is_tensor and not a.differentiable]
    leaves = subject.leaves()
    before, on_cuda = Snapshot([*leaves, *(a.value for a in others)]), any(leaf.is_cuda for leaf in leaves)
    subject.reseed()
    state = random_states(on_cuda)
    outputs = _counted(subject, leaves, saved)
    drew = random_states(on_cuda) != state
    names = [a.name for a in [*subject.differentiable, *others]]
    written = tuple(names[i] for i in before.changed())
    if written and not subject.writes:
        subject.writes = True
        _restore(others, before, len(leaves))
        leaves = subject.leaves()
        outputs = _counted(subject, leaves, saved)
    _refuse_without_elements(outputs)
    numeric = [place for place, output in enumerate(outputs) if isinstance(output, Tensor) and _is_number(output)]
    checked = tuple(place for place in numeric if outputs[place].requires_grad and (wanted is None or place in wanted))
    detached = tuple(place for place in numeric if not outputs[place].requires_grad)
    graph = [outputs[place] for place in numeric]
    return ForwardSeen(tuple(leaves), tuple(outputs), checked, detached, function_classes(graph), written, saved.packed, is_handwritten(graph), drew)


def _counted(subject: Subject, leaves: list[Tensor], saved: Saved) -> list[Any]:
    """A forward whose saved tensors are counted. Only the last one counts: its graph is the one that is kept."""
    saved.packed = saved.unpacked = 0
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        return subject.probe(leaves)


def observe_backward(subject: Subject, seen: ForwardSeen, function: Differentiable, cotangents: tuple[Tensor, ...], saved: Saved) -> BackwardSeen:
    """One backward of the base graph: raw returns, a damaged cotangent, tensors unpacked, what it raised."""
    raw, before, error = list[RawReturn](), Snapshot(cotangents), None
    gradients: Gradients = (None,) * len(seen.leaves)
    with tapped(seen.classes, raw):
        try:
            gradients = _first_gradients(subject, seen, function, cotangents)
        except UserCodeError as raised:
            error = raised
    gradients = tuple(None if g is None else g.clone() for g in gradients)      # a backward may hand out a buffer that its next call overwrites
    damaged = tuple((seen.checked[i], before.difference(i)) for i in before.changed())
    return BackwardSeen(cotangents, gradients, tuple(raw), error, damaged, saved.unpacked)


def _first_gradients(subject: Subject, seen: ForwardSeen, function: Differentiable, cotangents: tuple[Tensor, ...]) -> Gradients:
    """From the base graph; where that is refused, by the other ways that `Differentiable` knows."""
    outputs = [seen.outputs[place] for place in seen.checked]
    subject.counted_backward()
    try:
        with blamed("GV003", "backward"):
            return torch.autograd.grad(outputs, seen.leaves, cotangents, retain_graph=True, allow_unused=True)
    except UserCodeError as refused:
        try:
            return function.vjp([cotangent.clone() for cotangent in cotangents])
        except UserCodeError:
            raise refused from None


def _refuse_without_elements(outputs: Sequence[Any]) -> None:
    """Tensors that are a shape only, or many shapes at once. Raises UserCodeError (GV008)."""
    for place, output in enumerate(outputs):
        if isinstance(output, Tensor) and (output.is_meta or output.is_nested):
            raise UserCodeError("GV008", f"y{place} is a {'meta' if output.is_meta else 'nested'} tensor, whose elements cannot be compared")


def _is_number(output: Tensor) -> bool:
    return output.is_floating_point() or output.is_complex()


def _restore(arguments: Sequence[Argument], before: Snapshot, offset: int) -> None:
    """Puts back what a forward wrote into arguments that are not differentiated."""
    for place, argument in enumerate(arguments):
        with torch.no_grad():
            argument.value.copy_(before.value(offset + place))
