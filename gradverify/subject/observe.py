"""The base call, watched: one forward and one backward from which many rules read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.alias import Named
from gradverify.subject.ambient import in_our_way, left_as_found
from gradverify.subject.custody import Custody, Saves, Written, arguments, given_back, held, saved_tensors, written
from gradverify.subject.differentiable import Differentiable, Gradients, copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import Kept, RawReturn, function_classes, function_nodes, tapped
from gradverify.subject.guard import admit_outputs, comparable, of_type
from gradverify.subject.left import GRADIENTS_OFF, Left, noticed
from gradverify.subject.native import called_again
from gradverify.subject.seeded import BACKWARD
from gradverify.subject.snapshot import Change, Snapshot
from gradverify.subject.subject import Argument, Called, Subject, Way

Drawn = tuple[tuple[object, ...], tuple[object, ...]]
HOOKS_REFUSED = "saved tensor hooks"     # torch.func's, where these are active as a transform begins


@dataclass(frozen=True, slots=True)
class ForwardSeen:
    """The base forward. `outputs` are all flattened ones; `checked` the places of the compared ones; `detached` of floating ones
    without a graph; `classes` the custom Functions in the graph, `nodes` their nodes (those written in C++ too), `saved` what these saved;
    `written` the arguments that the call changed and did not return, `freed` those whose memory it gave back;
    `packed`: how many tensors it saved, None where they cannot be counted;
    `random`: it drew from a global generator. `left`: global state that it left changed; `drawn`: what the generators would draw before and after
    it (`Seeded.states`)."""

    leaves: tuple[Tensor, ...]
    called: Called
    checked: tuple[int, ...]
    detached: tuple[int, ...]
    classes: tuple[type, ...]
    nodes: tuple[Any, ...]
    saved: Saves
    written: tuple[Written, ...]
    freed: tuple[str, ...]
    packed: int | None
    random: bool
    left: tuple[Left, ...]
    drawn: Drawn

    @property
    def outputs(self) -> tuple[Any, ...]:
        return self.called.outputs


@dataclass(frozen=True, slots=True)
class BackwardSeen:
    """The base backward, for a dense random cotangent. `direct`: the base graph itself gave the gradients; `error`: what it raised;
    `damaged`: (output, flat index, before, after) of a cotangent that backward wrote to; `written`: what else it changed, which was put back;
    `unpacked`: how many saved tensors it asked for. `left`, `drawn`: as of a forward."""

    cotangents: tuple[Tensor, ...]
    gradients: Gradients
    raw: tuple[RawReturn, ...]
    direct: bool
    error: UserCodeError | None
    damaged: tuple[tuple[int, Change | None], ...]
    written: tuple[Written, ...]
    unpacked: int
    left: tuple[Left, ...]
    drawn: Drawn


class Saved:
    """Counts the tensors that forward packs for backward, and those that backward unpacks. `tensors`: the packed ones, whosoever packed them.
    `refused`: the function does not run while they are counted (torch.func's grad, vjp, jacrev and hessian)."""

    def __init__(self) -> None:
        self.refused = False
        self.tensors: list[Tensor] = []
        self.unpacked = 0

    @property
    def packed(self) -> int:
        return len(self.tensors)

    def pack(self, tensor: Tensor) -> Tensor:
        self.tensors.append(tensor)
        return tensor

    def unpack(self, tensor: Tensor) -> Tensor:
        self.unpacked += 1
        return tensor

    def of(self, nodes: Sequence[Any]) -> Saves:
        """What the nodes saved; looking at it does not count."""
        before = self.unpacked
        found = saved_tensors(nodes)
        self.unpacked = before
        return found


def observe_forward(subject: Subject, wanted: Sequence[int] | None, saved: Saved) -> ForwardSeen:
    """One forward: what it returns, writes, packs and leaves in the graph. `wanted`: the outputs the spec asks for, None for all.

    Raises UserCodeError (GV002).
    """
    others = [a for a in subject.arguments if a.is_tensor and not a.differentiable]
    leaves = subject.leaves()
    before = Snapshot([*leaves, *(a.value for a in others)])
    state = subject.fresh_states()
    with left_as_found(in_our_way()) as changed, noticed() as left:
        called = _counted(subject, leaves, saved)
    subject.meddles = bool(changed)
    drawn = state, subject.states()
    left += [GRADIENTS_OFF] * subject.disables
    if (before.changed() or before.freed()) and not subject.writes:
        subject.writes = True
        _restore(others, before, len(leaves))
        leaves = subject.leaves()
        called = _counted(subject, leaves, saved)
    outputs = called.outputs
    admit_outputs(outputs, subject.output_names, wanted)
    numeric = [place for place, output in enumerate(outputs) if comparable(output)]
    checked = tuple(place for place in numeric if outputs[place].requires_grad and (wanted is None or place in wanted))
    detached = tuple(place for place in numeric if not outputs[place].requires_grad)
    found = [outputs[place] for place in numeric]
    nodes = function_nodes(found)
    return ForwardSeen(tuple(leaves), called, checked, detached, function_classes(found), nodes, saved.of(nodes),
                       written(subject, called) if subject.writes else (), given_back(subject, called), None if saved.refused else saved.packed,
                       drawn[0] != drawn[1], tuple(left), drawn)


def _counted(subject: Subject, leaves: list[Tensor], saved: Saved) -> Called:
    """A forward whose saved tensors are counted, where it lets us. Only the last one counts: its graph is the one that is kept."""
    saved.tensors, saved.unpacked = [], 0
    if not saved.refused:
        try:
            with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
                return subject.probed(leaves)
        except UserCodeError as error:
            if HOOKS_REFUSED not in error.message:
                raise
        saved.refused, saved.tensors = True, []
    return subject.probed(leaves)


def observe_backward(subject: Subject, seen: ForwardSeen, function: Differentiable, cotangents: tuple[Tensor, ...], saved: Saved) -> BackwardSeen:
    """One backward of the base graph: raw returns, what it wrote into, tensors unpacked, what it raised."""
    given, raw, error = tuple(cotangent.clone() for cotangent in cotangents), list[RawReturn](), None
    before = Snapshot(given)
    custody = Custody(held(subject, seen.called, seen.saved))
    gradients: Gradients = (None,) * len(seen.leaves)
    first, direct = gradients, False
    drawn: Drawn = ((), ())
    fresh = subject.fresh_states(BACKWARD)
    with (called_again(seen.nodes, raw, lambda: known(subject, seen.called, saved.tensors, gradients), subject.counted_backward),
          tapped(seen.classes, raw, kept(subject, seen.called, seen.saved))):
        try:
            with left_as_found(in_our_way()), noticed() as left:
                gradients, direct = _first_gradients(subject, seen, function, given)
            drawn = fresh, subject.states()
            _refuse_odd(subject, gradients)
            first = copied(gradients)       # before a node is called again, which may write into what it returned
        except UserCodeError as raised:
            error = raised
    damaged = tuple((seen.checked[i], before.difference(i)) for i in before.changed())
    return BackwardSeen(cotangents, first, tuple(raw), direct, error, damaged, _put_back(subject, function, custody), saved.unpacked,
                        tuple(left), drawn)


def kept(subject: Subject, called: Called, saves: Saves) -> Kept:
    """The tensors that a ctx must not return the memory of: what it saved, and the arguments of the call."""
    own = arguments(subject, called)
    return lambda ctx: [*own, *((f"saved tensor {place}", tensor) for place, tensor in enumerate(saves.get(ctx, ())))]


def known(subject: Subject, called: Called, saved: Sequence[Tensor], gradients: Gradients) -> list[Named]:
    """The tensors that a Function written in C++, whose ctx cannot be read, must not return the memory of. `gradients`: those of an earlier call."""
    earlier = [("the gradient of an earlier call", gradient) for gradient in gradients if gradient is not None]
    return [*arguments(subject, called), *(("a saved tensor", tensor) for tensor in saved), *earlier]


def _put_back(subject: Subject, function: Differentiable, custody: Custody) -> tuple[Written, ...]:
    """What backward wrote into. From then on no graph serves two backwards, and no call gets the arguments themselves."""
    found = custody.broken()
    if custody.gone():
        function.use_once()
        custody.refill()
    if found:
        function.use_once()
        subject.writes = subject.writes or any(each.held.kind == "argument" for each in found)
        custody.restore()
    return found


def _first_gradients(subject: Subject, seen: ForwardSeen, function: Differentiable, cotangents: tuple[Tensor, ...]) -> tuple[Gradients, bool]:
    """From the base graph; where that is refused, by the other ways that `Differentiable` knows."""
    outputs = [seen.outputs[place] for place in seen.checked]
    try:
        return subject.pull(seen.called, outputs, seen.leaves, cotangents, retain=True, way=Way.REUSED), True
    except UserCodeError as refused:
        try:
            return function.vjp([cotangent.clone() for cotangent in cotangents]), False
        except UserCodeError:
            raise refused from None


def _refuse_odd(subject: Subject, gradients: Gradients) -> None:
    """Raises UserCodeError (GV003) where backward gives another kind of tensor than a gradient can be."""
    for argument, gradient in zip(subject.differentiable, gradients, strict=True):
        odd = None if gradient is None else of_type(gradient)
        if odd is not None:
            raise UserCodeError("GV003", f"backward returns {odd[0]} for {argument.name}, whose elements cannot be compared",
                                hint=f"return a plain tensor: {odd[1]}")


def _restore(arguments: Sequence[Argument], before: Snapshot, offset: int) -> None:
    """Puts back what a forward wrote into arguments that are not differentiated."""
    gone = before.freed()
    with torch.no_grad():
        for place, argument in enumerate(arguments, offset):
            if place in gone:
                before.refill(place)
            else:
                argument.value.copy_(before.value(place))
