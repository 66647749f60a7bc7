"""The base call of a subject, which others are compared with: one observed forward and backward,
each made once; and calls with poisoned memory, which show whether a result depends on uninitialised
memory, or a call writes outside its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property, partial
from math import isnan
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from gradverify.model.case import Settings
from gradverify.model.fault import BESIDE
from gradverify.numerics.function.coordinates import UNITS, flat_real
from gradverify.subject.ambient import (
    GRADIENTS_OFF,
    OURS,
    Left,
    left_as_found,
    noticed,
)
from gradverify.subject.differentiable import Differentiable, Returned
from gradverify.subject.draw import signed
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.forms import admit_outputs, comparable, is_plain, of_type
from gradverify.subject.graph import (
    RawReturn,
    Wrote,
    called_again,
    function_classes,
    function_nodes,
    tapped,
    watched,
)
from gradverify.subject.own_code import Keywords, wrapped
from gradverify.subject.rounding import Exchanged, is_fresh
from gradverify.subject.snapshot import (
    Change,
    Named,
    Snapshot,
    alike,
    change,
    copied,
    freed,
    near,
    overlaps,
    same,
)
from gradverify.subject.subject import (
    BACKWARD,
    Argument,
    Gradients,
    Graph,
    Subject,
    Tensors,
    Way,
    as_leaves,
)
from gradverify.torch_private import (
    Overload,
    function_class,
    is_zerotensor,
    kernel,
    pytree,
    schema,
    without_modes,
)

# ---- Tensors that backward must not change: the arguments, the outputs, a module's buffers, the
# tensors that forward saved
Saves = Mapping[Any, Tensors]
Kind = Literal["argument", "output", "buffer", "saved"]


class Held(NamedTuple):
    """A tensor that backward must not change. `place`: the index of an output among all outputs."""

    kind: Kind
    name: str
    tensor: Tensor
    place: int | None = None


class Written(NamedTuple):
    """A tensor that was changed, and the change of its first changed element (None for a complex
    tensor)."""

    held: Held
    change: Change | None


class Custody(Snapshot):
    """The tensors of one graph, remembered by value. A change of memory that several tensors share
    is reported for the first of them."""

    def __init__(self, held: Sequence[Held]) -> None:
        super().__init__([each.tensor for each in held])
        self._held = tuple(held)

    def broken(self) -> tuple[Written, ...]:
        """Return the tensors that were changed since."""
        found: list[Written] = []
        for i in self.changed():
            held = self._held[i]
            if not any(overlaps(held.tensor, other.held.tensor) for other in found):
                found.append(Written(held, self.difference(i)))
        return tuple(found)


def freed_arguments(subject: Subject, graph: Graph) -> tuple[str, ...]:
    """Return the names of the arguments whose memory a forward freed."""
    return tuple(
        argument.name for argument, now in _tensors(subject, graph) if freed(now, argument.value)
    )


def held(subject: Subject, graph: Graph, saved: Saves) -> list[Held]:
    """Return the tensors of one forward whose numbers can be read. `saved`: the tensors that each
    custom node saved."""
    found = [Held("argument", name, value) for name, value in arguments(subject, graph)]
    outputs = enumerate(graph.outputs)
    found += [Held("output", f"y{n}", y, n) for n, y in outputs if isinstance(y, Tensor)]
    found += [Held("buffer", name, buffer) for name, buffer in subject.buffers(graph).items()]
    for node, tensors in saved.items():
        owner = function_class(node)
        name = owner.__name__ if owner else node.name()
        found += [Held("saved", f"saved tensor {n} of {name}", x) for n, x in enumerate(tensors)]
    return [each for each in found if is_plain(each.tensor)]


def arguments(subject: Subject, graph: Graph) -> list[Named]:
    """Return the tensor arguments as the function received them, by name."""
    return [(argument.name, value) for argument, value in _tensors(subject, graph)]


def _tensors(subject: Subject, graph: Graph) -> list[tuple[Argument, Tensor]]:
    return [
        (argument, now)
        for argument, now in zip(subject.arguments, graph.arguments, strict=True)
        if argument.is_tensor
    ]


def saved_tensors(nodes: Sequence[Any]) -> Saves:
    """Return the tensors that each Python node saved; none where they can no longer be read."""
    result: dict[Any, Tensors] = dict.fromkeys(nodes, ())
    for node in nodes:
        with suppress(RuntimeError):  # freed, or changed since
            found = getattr(node, "saved_tensors", ())
            result[node] = tuple(tensor for tensor in found if tensor is not None)
    return result


# ---- Records of the base forward and backward, which many rules read
Drawn = tuple[tuple[object, ...], tuple[object, ...]]
# Part of the error of torch.func where saved tensor hooks are active as a transform begins
HOOKS_REFUSED = "saved tensor hooks"


class ForwardSeen(NamedTuple):
    """The base forward. `outputs`: all flattened outputs; `checked`: the indices of the compared
    outputs; `detached`: of the floating outputs without a graph; `classes`: the custom Functions in
    the graph, `nodes`: their nodes (those written in C++ too), `saved`: the tensors that these
    saved; `written`: the arguments that the call changed and did not return, `freed`: the arguments
    whose memory it freed; `packed`: how many tensors it saved, None where they cannot be counted;
    `random`: whether it drew from a global generator. `left`: global state that it left changed;
    `drawn`: what the generators would draw before and after it (`Subject.states`)."""

    graph: Graph
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
    def leaves(self) -> Tensors:
        return self.graph.leaves

    @property
    def outputs(self) -> tuple[Any, ...]:
        return self.graph.outputs


class BackwardSeen(NamedTuple):
    """The base backward, for a dense random cotangent. `direct`: whether the base graph itself gave
    the gradients; `error`: what it raised;
    `damaged`: (output, flat index, before, after) of a cotangent that backward wrote to; `written`:
    other tensors that it changed, which were restored;
    `unpacked`: how many saved tensors it unpacked. `left`, `drawn`: as in ForwardSeen."""

    cotangents: Tensors
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
    """Counter of the tensors that forward packs for backward, and that backward unpacks.
    `tensors`: all packed tensors, of torch's own operations too.
    `refused`: whether the function does not run while they are counted (torch.func's grad, vjp,
    jacrev and hessian)."""

    def __init__(self) -> None:
        self.refused = False
        self.tensors: list[Tensor] = []
        self.unpacked = 0

    def pack(self, tensor: Tensor) -> Tensor:
        self.tensors.append(tensor)
        return tensor

    def unpack(self, tensor: Tensor) -> Tensor:
        self.unpacked += 1
        return tensor


def _compared(outputs: Sequence[Any], wanted: Sequence[int] | None) -> tuple[int, ...]:
    """Return the indices of the outputs that are compared, out of `wanted` (None: all)."""
    return tuple(
        place
        for place, y in enumerate(outputs)
        if comparable(y) and y.requires_grad and (wanted is None or place in wanted)
    )


def observe_forward(subject: Subject, wanted: Sequence[int] | None, saved: Saved) -> ForwardSeen:
    """Run one forward; record what it returns, writes, packs and leaves in the graph. `wanted`: the
    indices of the outputs that the spec selects, None for all.

    Raises UserCodeError (GV002).
    """

    def counted(leaves: list[Tensor]) -> Graph:
        """Run a forward and count its saved tensors where it runs under the hooks. The counts are
        of the last call, whose graph is kept."""
        saved.tensors, saved.unpacked = [], 0
        if not saved.refused:
            with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
                found = attempted(subject.probed, leaves)
            if not isinstance(found, UserCodeError):
                return found
            if HOOKS_REFUSED not in found.message:
                raise found
            saved.refused, saved.tensors = True, []
        return subject.probed(leaves)

    leaves = subject.leaves()
    before = Snapshot([*leaves, *(a.value for a in subject.tensors if not a.differentiable)])
    state = subject.fresh_states()
    with left_as_found(OURS) as changed, noticed() as left:
        graph = counted(leaves)
    subject.meddles = bool(changed)
    drawn = state, subject.states()
    left += [GRADIENTS_OFF] * subject.disables
    if (before.changed() or before.freed()) and not subject.writes:
        subject.writes = True
        before.restore()
        graph = counted(subject.leaves())
    outputs = graph.outputs
    admit_outputs(outputs, subject.name_of, wanted)
    numeric = [place for place, output in enumerate(outputs) if comparable(output)]
    nodes, unpacked = function_nodes([outputs[place] for place in numeric]), saved.unpacked
    of_nodes = saved_tensors(nodes)
    saved.unpacked = unpacked  # reading them here does not count
    # An argument that is returned was written in place on purpose
    written = (
        Written(Held("argument", argument.name, now), change(argument.value, now))
        for argument, now in _tensors(subject, graph)
        if is_plain(now)
        and not freed(now, argument.value)
        and not same(argument.value, now)
        and not any(output is now for output in outputs)
    )
    return ForwardSeen(
        graph,
        _compared(outputs, wanted),
        tuple(place for place in numeric if not outputs[place].requires_grad),
        function_classes(nodes),
        nodes,
        of_nodes,
        tuple(written) if subject.writes else (),
        freed_arguments(subject, graph),
        None if saved.refused else len(saved.tensors),
        drawn[0] != drawn[1],
        tuple(left),
        drawn,
    )


# ---- The base call of a subject, which others are compared with: one observed forward and
# backward, each made once
STEP = 1e-3  # of each element's size: a detached output that moves depends on the inputs
REPEATS = 2  # further backwards of the base graph, and of the one that later backwards share
STEADY = 5e-2  # of the largest gradient: more is not the rounding of any dtype


class BaseCall:
    """The base call of a subject. Properties are measured once, when first read, and raise
    UserCodeError where the user's code raises."""

    def __init__(
        self,
        subject: Subject,
        differentiate: Callable[[Subject, Sequence[int]], Differentiable] = Differentiable,
    ) -> None:
        """`differentiate` makes the function whose gradients are examined: the subject's own, or
        one damaged on purpose."""
        self.subject, self.inputs = subject, subject.differentiable
        self.name_of = subject.name_of
        self._differentiate = differentiate
        if self.settings.poison:
            subject.poison = Poisoned
        self._saved = Saved()
        self._cotangents = dict[str, tuple[Tensor, ...]]()

    @property
    def settings(self) -> Settings:
        return self.subject.case.settings

    @cached_property
    def empty(self) -> bool:
        """Whether a tensor argument has no elements."""
        return any(a.value.numel() == 0 for a in self.subject.tensors)

    @cached_property
    def memory(self) -> Memory:
        """The findings of calls with poisoned memory. Read before any other property, its first
        call is the first call of the check. Raises UserCodeError where forward raises."""
        poison, self.subject.poison = self.subject.poison, None  # its calls are poisoned already
        try:
            return measured(self)
        finally:
            self.subject.poison = poison

    @property
    def poisoned(self) -> Memory:
        """`memory` if it was measured, an empty result otherwise."""
        return vars(self).get("memory") or Memory(from_the_start=True)

    @property
    def damaging(self) -> bool:
        """Whether a call wrote out of bounds, so that the function must not be called again."""
        return self.poisoned.out_of_bounds is not None

    @cached_property
    def forward(self) -> ForwardSeen:
        """The base forward, observed."""
        return observe_forward(self.subject, self.settings.outputs, self._saved)

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """The indices of outputs without a graph that the spec lists under `outputs` and whose
        values depend on the inputs."""
        outputs, wanted = self.forward.outputs, self.settings.outputs or ()
        named = [place for place in self.forward.detached if place in wanted]
        if not named:
            return ()
        moved = [x + STEP * x.abs().clamp_min(STEP) for x in self.subject.inputs]
        there = self.subject.probed(as_leaves(moved)).outputs
        return tuple(place for place in named if not same(outputs[place], there[place]))

    @cached_property
    def function(self) -> Differentiable:
        """The checked outputs as a function of the differentiable inputs."""
        function = self._differentiate(self.subject, self.forward.checked)
        function.earlier = self.outputs
        return function

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """Copies of the checked outputs at the point: a backward may free or overwrite what forward
        returned."""
        return copied(self.returned)

    @property
    def odd(self) -> str | None:
        """A clause naming the input or output that is sparse or nested, for rules on strides,
        memory and modes, which such tensors do not have; None where all are dense."""
        return self.subject.odd if self.forward else None

    @property
    def returned(self) -> Tensors:
        """The checked outputs as returned, with their graph and memory."""
        return tuple(self.forward.outputs[place] for place in self.forward.checked)

    @property
    def reseeded(self) -> Tensors:
        """The checked outputs of one more forward at the point, with generators seeded
        differently."""
        return self._elsewhere[0]

    @cached_property
    def _elsewhere(self) -> tuple[Tensors, tuple[object, ...]]:
        """`reseeded`, and what the generators would draw after that forward."""
        return self.poisoned.elsewhere or self.subject.seeded_elsewhere(
            lambda: (
                tuple(y.detach() for y in self.function.values(self.subject.leaves())),
                self.subject.states(),
            )
        )

    @cached_property
    def fixed_by_forward(self) -> tuple[int, ...]:
        """The generators (indices into `Subject.states`) that forward seeds itself: their state
        after it does not depend on their state before. One more call is made where forward drew."""
        measurable = self.forward.random or "_elsewhere" in vars(self)
        if not measurable or not self.settings.reseed:
            return ()
        return _alike_places(self.forward.drawn[1], self._elsewhere[1])

    @cached_property
    def fixed_by_backward(self) -> tuple[int, ...]:
        """The generators that backward seeds itself; one more call is made where backward drew.
        Raises UserCodeError."""
        before, after = self.worked.drawn
        if not self.settings.reseed or before == after:
            return ()
        self.function.here()  # a forward that draws must not run under the other seed
        again = self.subject.seeded_elsewhere(
            lambda: (self.function.vjp(self.cotangents("base")), self.subject.states())[1]
        )
        return _alike_places(after, again)

    @property
    def draws(self) -> bool:
        """Whether forward draws random numbers; if it restores the generators' state afterwards
        (`fork_rng`), this is noticed once `reseeded` has been measured."""
        return self.forward.random or ("_elsewhere" in vars(self) and self._draws_in_hiding)

    @cached_property
    def _draws_in_hiding(self) -> bool:
        """Whether the outputs change with the seed of the generators, and are reproduced with each
        of two seeds."""
        if alike(self.outputs, self.reseeded):
            return False
        again = self.subject.seeded_elsewhere(lambda: self.function.values(self.subject.leaves()))
        return alike(self.outputs, self.function.values(self.subject.leaves())) and alike(
            self.reseeded, [y.detach() for y in again]
        )

    def cotangents(self, purpose: str) -> tuple[Tensor, ...]:
        """Draw dense random signed cotangents, one per checked output, magnitudes in [0.7, 1.4].
        Returns fresh copies, which backward may write into."""
        return copied(self._drawn_cotangents(purpose))

    def _drawn_cotangents(self, purpose: str) -> Tensors:
        """Return the cotangents of `cotangents` uncopied, for reading only."""
        if purpose not in self._cotangents:
            source = self.subject.generator(f"cotangent {purpose}")
            self._cotangents[purpose] = tuple(signed(output, source) for output in self.outputs)
        return self._cotangents[purpose]

    @cached_property
    def backward(self) -> BackwardSeen:
        """The base backward, for dense random cotangents: of the base graph, or where that is
        refused by the other ways of `Differentiable`."""
        subject, seen, function = self.subject, self.forward, self.function
        given, error = self.cotangents("base"), None
        before, custody = Snapshot(given), Custody(held(subject, seen.graph, seen.saved))
        gradients: Gradients = (None,) * len(seen.leaves)
        drawn: Drawn = ((), ())
        first, direct, fresh = gradients, True, subject.fresh_states(BACKWARD)
        with self._recorded_returns(seen.graph, lambda: gradients) as raw:
            with left_as_found(OURS), noticed() as left:
                found = attempted(
                    subject.pull, seen.graph, self.returned, given, retain=True, way=Way.REUSED
                )
                if isinstance(found, UserCodeError):
                    direct, again = False, tried(function.vjp, copied(given))
                    found = found if again is None else again
            if isinstance(found, UserCodeError):
                error = found
            else:
                gradients, drawn = found, (fresh, subject.states())
                for argument, gradient in zip(subject.differentiable, gradients, strict=True):
                    if error is None and gradient is not None and (odd := of_type(gradient)):
                        error = UserCodeError(
                            "GV003",
                            f"backward returns {odd[0]} for {argument.name}, whose elements "
                            "cannot be compared",
                            hint=f"return a plain tensor: {odd[1]}",
                        )
                # Copied before a node is called again, which may overwrite what it returned
                first = first if error else copied(gradients)
        damaged = tuple((seen.checked[i], before.difference(i)) for i in before.changed())
        written = custody.broken()
        # From now on no graph serves two backwards, and no call gets the arguments themselves
        if written or custody.freed():
            function.use_once()
            subject.writes = subject.writes or any(each.held.kind == "argument" for each in written)
            custody.restore()
        return BackwardSeen(
            self._drawn_cotangents("base"),
            first,
            tuple(raw),
            direct,
            error,
            damaged,
            written,
            self._saved.unpacked,
            tuple(left),
            drawn,
        )

    @contextmanager
    def _recorded_returns(
        self, graph: Graph, earlier: Callable[[], Gradients] = tuple
    ) -> Iterator[list[RawReturn]]:
        """Context that records what every backward of a graph's Functions returns, together with
        the tensors whose memory must not be returned: the arguments of the call and the saved
        tensors of the ctx; for a Function written in C++, whose ctx cannot be read, all packed
        tensors and the gradients of an `earlier` call."""
        own, raw = arguments(self.subject, graph), list[RawReturn]()
        if graph is self.base:
            nodes, saves, packed = self.forward.nodes, self.forward.saved, self._saved.tensors
        else:
            nodes = function_nodes(self.function.of(graph))
            saves, packed = saved_tensors(nodes), []

        def kept(ctx: Any) -> Sequence[Named]:
            return [*own, *((f"saved tensor {n}", x) for n, x in enumerate(saves.get(ctx, ())))]

        def known() -> Sequence[Named]:
            gradients = [("the gradient of an earlier call", g) for g in earlier() if g is not None]
            return [*own, *(("a saved tensor", tensor) for tensor in packed), *gradients]

        with (
            called_again(nodes, raw, known, self.subject.counted_backward),
            tapped(self.forward.classes, raw, kept),
        ):
            yield raw

    @property
    def worked(self) -> BackwardSeen:
        """The base backward. Raises UserCodeError (GV003) where it raised."""
        if self.backward.error is not None:
            raise self.backward.error
        return self.backward

    @property
    def base(self) -> Graph:
        """The graph of the base forward."""
        return self.forward.graph

    @cached_property
    def later(self) -> Graph:
        """The graph of a further forward at the point, made when first read: after a call at
        another point, by the rule on calls in between."""
        return self.function.graph()

    @cached_property
    def reused(self) -> tuple[Gradients, ...]:
        """The gradients of two backwards of the graph that later ones share, for the base
        cotangents; of two graphs where the second is refused. Raises UserCodeError."""
        vjp = self.function.vjp
        return tuple(copied(vjp(self.cotangents("base"))) for _ in range(REPEATS))

    @cached_property
    def repeats(self) -> tuple[Returned, ...] | None:
        """The gradients of further backwards of the base graph for the base cotangents; None where
        a second backward is refused. Where the gradients differ, every later backward gets a graph
        of its own, so that only GV207 reports what accumulates in one graph (a buffer on ctx)."""
        if not self.worked.direct:
            return None
        # A custom Function is called on the graph without watched tensors first: torch does not
        # notice that a watched one was written to
        if self.forward.nodes and tried(lambda: self.reused) is None:
            return None
        if not self.function.reusable:
            return None
        function, worked = self.function, self.worked
        found = tried(
            lambda: tuple(
                Returned.now(function.gradients(self.base, worked.cotangents, retain=True))
                for _ in range(REPEATS)
            )
        )
        if found and not all(_steady(worked.gradients, again.values) for again in found):
            function.use_once()
        return found

    @property
    def reusable(self) -> bool:
        """Whether the graph of the base call supports further backwards, with the same
        gradients."""
        return self.repeats is not None and self.function.reusable

    @cached_property
    def refused(self) -> UserCodeError | None:
        """The error of a second backward of a fresh graph that the first one retained; None where
        it runs. The two backwards follow each other directly: a forward in between, which may break
        the base graph, is not the cause."""
        if self.repeats is not None or not self.worked.direct:
            return None
        graph, pull = tried(self.function.graph), self.function.gradients
        if graph is None or tried(pull, graph, self.worked.cotangents, retain=True) is None:
            return self.function.refused
        again = attempted(pull, graph, self.worked.cotangents, retain=True)
        return again if isinstance(again, UserCodeError) else None

    def forget_repeats(self) -> None:
        """Free the results of identical calls, once the rules on these have run: with a large input
        they take most of the memory in use."""
        measured = vars(self)
        for name in ("for_ones", "later"):
            measured.pop(name, None)
        for name in ("reused", "repeats"):
            if measured.get(name):
                measured[name] = ()
        if "backward" in measured:
            measured["backward"] = self.backward._replace(raw=())
            graph = self.function.shared
            # The shared graph replaces the base graph, which is freed with its saved tensors
            if graph is not None and self.reusable:
                nodes = function_nodes(self.function.of(graph))
                self._saved.tensors = []
                measured["forward"] = self.forward._replace(
                    graph=graph, nodes=nodes, saved=saved_tensors(nodes)
                )
        if "memory" in measured:
            measured["memory"] = self.memory._replace(repeats=(), earliest=None)

    def usable(self) -> Graph:
        """Return a graph for one more backward: the base graph, or that of a fresh forward. Raises
        UserCodeError (GV002)."""
        return self.base if self.reusable else self.function.graph()

    @cached_property
    def for_ones(self) -> tuple[tuple[RawReturn, ...], Gradients]:
        """What each backward returns for cotangents of ones, and the gradients that autograd gives.
        Raises UserCodeError."""
        graph, ones = self.usable(), list(map(torch.ones_like, self.outputs))
        with self._recorded_returns(graph) as raw:
            gradients = copied(self.function.gradients(graph, ones, retain=True))
        return tuple(raw), gradients

    @cached_property
    def inner_writes(self) -> tuple[Wrote, ...]:
        """Writes of the Functions inside a callable or module into their own arguments, observed in
        one more forward."""
        inner = [cls for cls in self.forward.classes if cls is not self.subject.target.subject]
        if not inner:
            return ()
        with watched(inner) as found:
            self.subject.probed(self.subject.leaves())
        return tuple(found)


def _steady(first: Gradients, again: Gradients) -> bool:
    """Return whether two calls gave the same gradients, up to rounding."""
    return all(
        a is None
        or b is None
        or not a.layout is b.layout is torch.strided
        or not bool(a.isfinite().all())
        or near(b, a, STEADY)
        for a, b in zip(first, again, strict=True)
    )


def _alike_places(a: Sequence[object], b: Sequence[object]) -> tuple[int, ...]:
    """Return the indices at which two sequences hold equal elements."""
    return tuple(
        place for place, (one, other) in enumerate(zip(a, b, strict=False)) if one == other
    )


# ---- Poisoned memory: uninitialised memory that torch hands out is filled with known values, and
# tensors lie between guard bytes
UNWRITTEN = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
    )
)
RESIZE = frozenset(("aten::resize_", "aten::resize_as_"))
# Bytes before and after a tensor: more than the tail of a tile overruns, and no change of alignment
GUARD = 512
MOST = 1 << 26  # bytes of all guarded tensors of a call; later ones are filled only
LOUD = 255  # value of a byte: NaN in every floating dtype, -1 in signed integers
LARGE_BYTE = 0x47  # value of a guard byte: a large number in every floating dtype
# The lowest byte of the NaN in guards, and how many different ones there are, so that a kernel that
# copies the guard of one tensor into that of another is noticed
PAYLOADS = 0x81, 126


class OutOfBounds(NamedTuple):
    """A write outside a tensor: its name, and the first element changed beyond its end (or before
    its start, negative)."""

    tensor: str
    element: int

    def raised(self, who: str) -> UserCodeError:
        """Return the error of the call of `who` that wrote."""
        hint = "look at the first and the last index that is written"
        return UserCodeError(BESIDE, self.sentence(who), hint=hint)

    def sentence(self, who: str) -> str:
        count = abs(self.element)
        where = "before the first" if self.element < 0 else "behind the last"
        return (
            f"{who} writes beside its tensor: {count} element{'s' * (count > 1)} {where} of "
            f"{self.tensor} there is another number after the call"
        )


class _Room(NamedTuple):
    """The bytes of a guarded tensor, with those of `guard` before and after its own."""

    name: str
    memory: Tensor
    element: int
    guard: Tensor


class Placement(Enum):
    """Where the arguments of a poisoned call lie in memory."""

    SLICED = auto()  # between guard bytes of their own storage, as slices of a larger tensor
    WHOLE = auto()  # between guard bytes outside of their storage
    USUAL = auto()  # without guard bytes, as are the results of operations then


class Poisoned(Exchanged):
    """Mode in which uninitialised memory holds NaN, -1 and True (`loud`), or large numbers of both
    signs, 1 (0 in unsigned dtypes) and False. `handed_out`: whether any was handed out."""

    kernel = staticmethod(kernel)

    def __init__(self, loud: bool, placement: Placement = Placement.WHOLE) -> None:
        super().__init__()
        self._loud, self.handed_out = loud, False
        self._guards = placement is not Placement.USUAL
        self._start = GUARD if placement is Placement.SLICED else 0
        self._rooms = dict[int, _Room]()
        self._held = 0

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        if not isinstance(func, Overload):  # a higher-order operator
            return wrapped(func, *args, **named)
        operation = schema(func).name
        given = [x for x in pytree.tree_leaves((args, named)) if isinstance(x, Tensor)]
        before = _bytes_of(given[0]) if operation in RESIZE and _has_memory(given[0]) else 0
        returned = self._called(func, args, named)
        if operation in RESIZE:
            self._fill(given[0], before)
        if not is_fresh(func):
            return returned
        if operation in UNWRITTEN:
            self._fill(returned, 0)
        taken = {x.untyped_storage().data_ptr() for x in given if _has_memory(x)}
        name = str(func).removesuffix(".default").partition(".")[2] or str(func)

        def moved(y: Any) -> Any:
            """Move a fresh result between guard bytes, if it shares its memory with no other
            tensor."""
            is_own = (
                type(y) is Tensor
                and _has_memory(y)
                and y.untyped_storage().data_ptr() not in taken
                and y.storage_offset() == 0
                and _bytes_of(y) == y.numel() * y.element_size()
                and self._held + _bytes_of(y) <= MOST
            )
            return self._placed(y, f"the result of {name} {list(y.shape)}") if is_own else y

        return pytree.tree_map(moved, returned)

    def guarded(self, x: Tensor, name: str) -> Tensor:
        """Return a copy of an argument in the same layout, between guard bytes."""
        return self._placed(x, name, self._start)

    def _placed(self, x: Tensor, name: str, start: int = 0) -> Tensor:
        """Return a copy between guard bytes that begins `start` bytes into its storage. With 0 the
        guards lie outside of the storage, as code that allocated the tensor itself may assume."""
        if not self._guards or not _has_memory(x):
            return x
        own, numbers = _memory(x), x.is_floating_point() or x.is_complex()
        # Guards are checked for changes: NaN with another payload for each tensor, or a large
        # number; -1 or 0 in integers
        guard = own.new_full((GUARD,), LOUD if self._loud else LARGE_BYTE * numbers)
        size = x.element_size() // (2 if x.is_complex() else 1)
        if self._loud and numbers and size > 1:
            guard[::size] = PAYLOADS[0] + len(self._rooms) % PAYLOADS[1]
        memory = torch.cat((guard, own, guard))
        inside = memory if start else memory[GUARD:-GUARD]
        storage = from_dlpack(to_dlpack(inside)).untyped_storage()  # keeps the memory alive
        self._rooms[storage.data_ptr()] = _Room(name, memory, x.element_size(), guard)
        self._held += len(memory)
        offset = int(x.storage_offset()) + start // x.element_size()
        return x.new_empty(0).set_(storage, offset, x.shape, x.stride())

    @contextmanager
    def numpys(self) -> Iterator[None]:
        """Context in which the results of `numpy.empty` and `numpy.empty_like` are filled too."""
        originals = {name: getattr(np, name) for name in ("empty", "empty_like")}

        def filled(made: Callable[..., Any], *args: Any, **named: Any) -> Any:
            array = made(*args, **named)
            if type(array) is np.ndarray and array.dtype.kind in "fciub" and array.size:
                with suppress(TypeError), without_modes():  # a dtype that torch does not have
                    self._fill(torch.from_numpy(array.ravel(order="K")), 0)
            return array

        for name, made in originals.items():
            setattr(np, name, partial(filled, made))
        try:
            yield
        finally:
            for name, made in originals.items():
                setattr(np, name, made)

    def out_of_bounds(self) -> OutOfBounds | None:
        """Return the first write into a guard."""
        for room in self._rooms.values():
            before, behind = (
                (part != room.guard).nonzero()
                for part in (room.memory[:GUARD], room.memory[-GUARD:])
            )
            if len(behind):
                return OutOfBounds(room.name, int(behind[0]) // room.element + 1)
            if len(before):
                return OutOfBounds(room.name, (int(before[-1]) - GUARD) // room.element)
        return None

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
            whole = not (x.is_floating_point() or x.is_complex())
            if not self._loud and whole and x.dtype.is_signed:
                memory[:: x.element_size()] = 1


LARGE = {dtype: torch.finfo(dtype).max / 4 for dtype in UNITS}


def _has_memory(x: Tensor) -> bool:
    """Return whether a tensor is a dense one of numbers with memory of its own."""
    return (
        type(x) in (Tensor, torch.nn.Parameter)
        and x.layout is torch.strided
        and not (x.is_meta or x.is_quantized or x.is_nested)
        and not (x.is_conj() or x.is_neg() or is_zerotensor(x))
        and _bytes_of(x) > 0
    )


def _bytes_of(x: Tensor) -> int:
    return x.untyped_storage().nbytes()


def _memory(x: Tensor) -> Tensor:
    """Return all bytes of a tensor's storage."""
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


# ---- Whether a result depends on uninitialised memory, or a call writes outside its tensors
ROUNDINGS = 2.0**10  # roundings by which two equal calls may differ, as atomic adds do


@dataclass
class Probe:
    """One forward, and one backward if it was reached, with poisoned memory.

    `graph`: of the forward; `states`: what the generators would draw after it; `places`: the
    indices of the compared outputs among all. `error`: what the call raised.
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
        """The outputs and gradients."""
        return (*self.outputs, *(self.gradients or ()))


@dataclass(frozen=True, slots=True)
class Depends:
    """A result that depends on how uninitialised memory is filled: an `output` (its index among
    all) or the gradient of an `input`; `count`: how many of its `size` real numbers change; `first`
    and `numbers`: the index of the first such number, and its values for the NaN filling and for
    that of large numbers. `raised`: instead of all these, the error that one of the fillings
    causes."""

    tensor: Tensor
    output: int | None = None
    input: int | None = None
    count: int = 0
    size: int = 0
    first: int = 0
    numbers: tuple[float, float] = (0.0, 0.0)
    raised: UserCodeError | None = None


class Memory(NamedTuple):
    """Findings of poisoned calls: a write out of bounds, in forward or in `backward`; `depends`:
    results that depend on uninitialised memory; `allocated`: whether any was handed out. Calls
    without findings are used as repetitions: `repeats` are their gradients for the base cotangents;
    `elsewhere` the outputs of a call with generators seeded differently, and what these would draw
    after it; `earliest` the outputs of the first call of the check, where all later ones differ.
    `from_the_start`: whether results change, or the case was not tried, where arguments are slices
    of larger tensors (as code does that reads an argument's storage from its start)."""

    out_of_bounds: OutOfBounds | None = None
    backward: bool = False
    depends: tuple[Depends, ...] = ()
    allocated: bool = False
    repeats: tuple[Gradients, ...] = ()
    elsewhere: tuple[Tensors, tuple[object, ...]] | None = None
    earliest: Tensors | None = None
    from_the_start: bool = False


def measured(base: BaseCall) -> Memory:
    """Make the poisoned calls of a base call. Raises UserCodeError where forward raises.

    The first call of a check has guard bytes around its inputs, cotangents and results of
    operations, and NaN in all uninitialised memory that is handed out. If there was such memory, or
    the results differ from the base call's, a second call follows with large numbers in that
    memory. Only if the two differ, each is repeated twice: results that then depend on the filling
    alone depend on uninitialised memory.
    """
    subject, raised = base.subject, None
    unit = max((UNITS[x.dtype] for x in subject.inputs), default=0.0)
    pulls = False  # whether the base call is known and has outputs to pull back

    def called(loud: bool, placement: Placement) -> Probe:
        """Run a forward with poisoned memory."""
        mode = Poisoned(loud, placement)
        probe = Probe(mode)
        leaves = [
            mode.guarded(leaf.detach(), argument.name).requires_grad_()
            for argument, leaf in zip(subject.differentiable, subject.leaves(), strict=True)
        ]

        def call() -> tuple[Graph, tuple[object, ...]]:
            with subject.fenced(mode.guarded), mode.numpys(), mode:
                graph = subject.probed(leaves)
            return graph, subject.states()

        with left_as_found():
            found = attempted(subject.seeded_elsewhere, call)
        if isinstance(found, UserCodeError):
            probe.error = found
            return probe
        probe.graph, probe.states = found
        probe.places = _compared(probe.graph.outputs, base.settings.outputs)
        probe.outputs = copied(probe.graph.outputs[n] for n in probe.places)
        return probe

    def pulled(probe: Probe) -> Probe:
        """Run the backward of a probe's graph, if it has one."""
        if probe.graph is None:
            return probe
        given = [probe.mode.guarded(v, "grad_output") for v in base.cotangents("base")]
        with left_as_found(), probe.mode.numpys(), probe.mode:
            found = attempted(base.function.gradients, probe.graph, given, fresh=True)
        if isinstance(found, UserCodeError):
            probe.error = found
        else:
            probe.gradients = copied(found) if _can_be_compared(found) else None
        return probe

    def run(loud: bool, placement: Placement) -> Probe:
        """Run a forward, and its backward where the base call has one."""
        probe = called(loud, placement)
        return pulled(probe) if pulls else probe

    def agree(some: Probe, others: Probe) -> bool:
        return not (some.error or others.error) and close(some.results, others.results, unit)

    first, writes = called(True, Placement.SLICED), subject.writes
    if written := first.mode.out_of_bounds():
        return Memory(written)
    seen = attempted(lambda: (base.forward, base.outputs))
    if isinstance(seen, UserCodeError):
        if not first.mode.handed_out:
            raise seen
        raised = seen
    else:
        forward, outputs = seen
        # Backwards of torch itself initialise all that they return
        pulls = bool(
            forward.checked
            and (forward.nodes or first.mode.handed_out)
            and all(bool(y.isfinite().all()) for y in outputs)
        )
        if subject.writes != writes:  # the function writes into its inputs, and now gets clones
            first = called(True, Placement.SLICED)
    if pulls and (written := pulled(first).mode.out_of_bounds()):
        return Memory(written, backward=True)
    random, from_the_start = raised is None and base.forward.random, False
    gradients = base.backward.gradients if pulls else ()
    own = gradients if _can_be_compared(gradients) else ()

    def as_base(probe: Probe) -> bool:
        """Return whether a probe has the results of the base call (for a function that draws, whose
        generators were seeded differently: whether they are finite)."""
        if probe.error:
            return probe.graph is not None and base.backward.error is not None
        if random:
            return all(y is None or bool(y.isfinite().all()) for y in probe.results)
        return close(probe.results, (*base.outputs, *own), unit)

    placement = Placement.SLICED
    if raised is None and not as_base(first):
        placement = Placement.WHOLE
        apart = run(True, placement)
        if not as_base(apart):
            first = apart
        else:
            second = run(True, Placement.SLICED)
            # If both sliced calls agree, the first one differed by its arguments' place in memory,
            # and not by being the first
            if bool(first.error and second.error) or agree(first, second):
                first, from_the_start = apart, True
    if raised is None and first.error and not as_base(first):
        # Code that frees its arguments refuses memory within that of another tensor
        placement, from_the_start = Placement.USUAL, True
        first = run(True, placement)
    allocated = first.mode.handed_out
    doubtful = bool(raised or first.error or allocated) or not as_base(first)
    quiet = run(False, placement) if doubtful else None
    if quiet is not None and not agree(first, quiet):
        # In an order that no periodic function of the number of calls follows
        loud = [run(True, placement) for _ in range(2)]
        quiets = [quiet, run(False, placement)]
        depending = depends(loud, quiets, unit)
        if any(each.raised is None and not isnan(each.numbers[0]) for each in depending):
            # A difference without NaN may be chance, in a function that draws
            for again in (True, True, False, True, False, False, True, False):
                (loud if again else quiets).append(run(again, placement))
            depending = depends(loud, quiets, unit)
        if depending:
            return Memory(depends=depending, allocated=allocated)
    if raised is not None:
        raise raised
    if first.error is not None:
        return Memory(allocated=allocated, from_the_start=from_the_start)
    same = random or alike(first.outputs, base.outputs)
    found = Memory(
        allocated=allocated,
        from_the_start=from_the_start,
        elsewhere=(first.outputs if random else base.outputs, first.states) if same else None,
    )
    if random:
        return found
    if not close(first.outputs, base.outputs, unit):
        later = quiet and not quiet.error and close(quiet.outputs, base.outputs, unit)
        return found._replace(earliest=first.outputs if later else None)
    calls = [probe.gradients for probe in (first, quiet) if probe and probe.gradients is not None]
    if not all(close(each, gradients, unit) for each in calls) and agree(
        run(True, placement), first
    ):
        return found  # the gradients depend on the filling or guards, not on the number of calls
    return found._replace(
        repeats=tuple(
            each for each in calls if alike(each, gradients) or not close(each, gradients, unit)
        )
    )


def _can_be_compared(gradients: Gradients) -> bool:
    """Return whether all gradients are plain tensors; other ones are left to the rules on what
    backward returns."""
    return all(gradient is None or is_plain(gradient) for gradient in gradients)


def depends(loud: Sequence[Probe], quiet: Sequence[Probe], unit: float) -> tuple[Depends, ...]:
    """Return the results that depend on the filling alone: equal in all calls with one filling, and
    different between the two."""
    errors = [probe.error for probe in (*loud, *quiet) if probe.error]
    raised = [{bool(probe.error) for probe in both} for both in (loud, quiet)]
    if raised in ([{True}, {False}], [{False}, {True}]):
        return (Depends(torch.empty(0), raised=errors[0]),)
    if errors or not all(
        close(probe.results, both[0].results, unit) for both in (loud, quiet) for probe in both[1:]
    ):
        return ()
    one, other = loud[0], quiet[0]
    outputs = zip(one.places, one.outputs, other.outputs, strict=False)
    found = [_apart(Depends(a, output=place), b, unit) for place, a, b in outputs]
    for place, (g, h) in enumerate(zip(one.gradients or (), other.gradients or (), strict=False)):
        if g is not None and h is not None:
            found.append(_apart(Depends(g, input=place), h, unit))
    return tuple(filter(None, found))


def _apart(at: Depends, other: Tensor, unit: float) -> Depends | None:
    """Return the elements of `at.tensor` that differ from `other` by more than rounding; None where
    none does."""
    if at.tensor.shape != other.shape:
        return None
    a, b = flat_real(at.tensor), flat_real(other)
    size = a.nan_to_num(0.0, 0.0, 0.0).abs().max() if a.numel() else 0.0
    roundings = ROUNDINGS * max(unit, UNITS.get(at.tensor.dtype, 0.0)) * size
    far = ((a - b).abs() > roundings) | (a.isnan() != b.isnan()) | (a.isinf() != b.isinf())
    if not bool(far.any()):
        return None
    first = int(far.nonzero()[0])
    return replace(
        at,
        count=int(far.sum()),
        size=a.numel(),
        first=first,
        numbers=(float(a[first]), float(b[first])),
    )


def close(some: Sequence[Tensor | None], others: Sequence[Tensor | None], unit: float) -> bool:
    """Return whether two calls give the same results, up to the rounding of sums in another
    order."""
    return alike(some, others) or (
        len(some) == len(others)
        and all(
            a is b
            if a is None or b is None
            else a.shape == b.shape and not _apart(Depends(a), b, unit)
            for a, b in zip(some, others, strict=True)
        )
    )
