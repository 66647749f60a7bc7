"""The base call of a subject, which others are compared with: one forward and one backward, watched, each made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.subject.alias import Named, overlaps
from gradverify.subject.ambient import GRADIENTS_OFF, Left, in_our_way, left_as_found, noticed
from gradverify.subject.differentiable import Differentiable, Gradients, Graph, Returned, copied
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.forms import admit_outputs, comparable, is_plain, of_type
from gradverify.subject.graph import RawReturn, Wrote, called_again, function_classes, function_nodes, tapped, watched
from gradverify.subject.seeded import BACKWARD
from gradverify.subject.snapshot import Change, Snapshot, alike, change, freed, same
from gradverify.subject.subject import Argument, Called, Subject, Way
from gradverify.subject.unwritten import Memory, measured
from gradverify.torch_private import function_class

# ---- What backward must leave as it found it: the arguments, the outputs, a module's buffers,
# the tensors that forward saved
Saves = Mapping[Any, tuple[Tensor, ...]]
Kind = Literal["argument", "output", "buffer", "saved"]


@dataclass(frozen=True, slots=True)
class Held:
    """One such tensor. `place`: of an output, among all outputs."""

    kind: Kind
    name: str
    tensor: Tensor
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor that was changed, and how its first changed element did (None where it is complex)."""

    held: Held
    change: Change | None


class Custody(Snapshot):
    """The tensors of one graph, remembered by value. Memory that two of them share is told under the first one's name."""

    def __init__(self, held: Sequence[Held]) -> None:
        super().__init__([each.tensor for each in held])
        self._held = tuple(held)

    def broken(self) -> tuple[Written, ...]:
        """What was changed since."""
        found: list[Written] = []
        for i in self.changed():
            held = self._held[i]
            if not any(overlaps(held.tensor, other.held.tensor) for other in found):
                found.append(Written(held, self.difference(i)))
        return tuple(found)


def written(subject: Subject, called: Called) -> tuple[Written, ...]:
    """The arguments that a forward changed and did not return: one that it returns was written in place on purpose."""
    changed = ((argument, now) for argument, now in zip(subject.arguments, called.arguments, strict=True)
               if argument.is_tensor and is_plain(now) and not freed(now, argument.value) and not same(argument.value, now))
    return tuple(Written(Held("argument", argument.name, now), change(argument.value, now)) for argument, now in changed
                 if not any(output is now for output in called.outputs))


def given_back(subject: Subject, called: Called) -> tuple[str, ...]:
    """The arguments whose memory a forward gave back."""
    pairs = zip(subject.arguments, called.arguments, strict=True)
    return tuple(argument.name for argument, now in pairs if argument.is_tensor and freed(now, argument.value))


def held(subject: Subject, called: Called, saved: Saves) -> list[Held]:
    """The tensors of one forward whose numbers can be read. `saved`: what each custom node saved."""
    found = [Held("argument", name, value) for name, value in arguments(subject, called)]
    found += [Held("output", f"y{place}", y, place) for place, y in enumerate(called.outputs) if isinstance(y, Tensor)]
    found += [Held("buffer", name, buffer) for name, buffer in subject.buffers(called).items()]
    for node, tensors in saved.items():
        owner = function_class(node)
        name = owner.__name__ if owner else node.name()
        found += [Held("saved", f"saved tensor {place} of {name}", tensor) for place, tensor in enumerate(tensors)]
    return [each for each in found if is_plain(each.tensor)]


def arguments(subject: Subject, called: Called) -> list[Named]:
    """The tensor arguments as the function got them, by name."""
    return [(argument.name, value) for argument, value in zip(subject.arguments, called.arguments, strict=True) if isinstance(value, Tensor)]


def saved_tensors(nodes: Sequence[Any]) -> Saves:
    """What each Python node saved; nothing where it can no longer be read."""
    result: dict[Any, tuple[Tensor, ...]] = {}
    for node in nodes:
        try:
            result[node] = tuple(tensor for tensor in getattr(node, "saved_tensors", ()) if tensor is not None)
        except RuntimeError:        # freed, or changed since
            result[node] = ()
    return result


# ---- The base call, watched: one forward and one backward from which many rules read
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
        before.restore()
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
    """One backward of the base graph, by the other ways that `Differentiable` knows where that is refused: raw returns, what it wrote into, tensors
    unpacked, what it raised."""
    given, raw, error = tuple(cotangent.clone() for cotangent in cotangents), list[RawReturn](), None
    before, custody = Snapshot(given), Custody(held(subject, seen.called, seen.saved))
    gradients: Gradients = (None,) * len(seen.leaves)
    first, direct = gradients, True
    drawn: Drawn = ((), ())
    fresh = subject.fresh_states(BACKWARD)
    with looked_at(subject, seen, seen.called, seen.nodes, seen.saved, saved.tensors, raw, lambda: gradients):
        try:
            with left_as_found(in_our_way()), noticed() as left:
                try:
                    outputs = [seen.outputs[place] for place in seen.checked]
                    gradients = subject.pull(seen.called, outputs, seen.leaves, given, retain=True, way=Way.REUSED)
                except UserCodeError as refused:
                    direct = False
                    try:
                        gradients = function.vjp([cotangent.clone() for cotangent in given])
                    except UserCodeError:
                        raise refused from None
            drawn = fresh, subject.states()
            for argument, gradient in zip(subject.differentiable, gradients, strict=True):
                odd = None if gradient is None else of_type(gradient)
                if odd is not None:
                    raise UserCodeError("GV003", f"backward returns {odd[0]} for {argument.name}, whose elements cannot be compared",
                                        hint=f"return a plain tensor: {odd[1]}")
            first = copied(gradients)       # before a node is called again, which may write into what it returned
        except UserCodeError as raised:
            error = raised
    damaged = tuple((seen.checked[i], before.difference(i)) for i in before.changed())
    written = custody.broken()
    if written or custody.freed():      # from now on no graph serves two backwards, and no call gets the arguments themselves
        function.use_once()
        subject.writes = subject.writes or any(each.held.kind == "argument" for each in written)
        custody.restore()
    return BackwardSeen(cotangents, first, tuple(raw), direct, error, damaged, written, saved.unpacked, tuple(left), drawn)


@contextmanager
def looked_at(subject: Subject, seen: ForwardSeen, called: Called, nodes: Sequence[Any], saves: Saves, packed: Sequence[Tensor],
              raw: list[RawReturn], earlier: Callable[[], Gradients] = tuple) -> Iterator[None]:
    """Inside, what every backward of a graph's Functions returns is left in `raw`, beside the tensors whose memory it must not return: the arguments
    of the call, what the ctx saved; of a Function written in C++, whose ctx cannot be read, all that was `packed`, and the gradients of an `earlier`
    call."""
    own = arguments(subject, called)

    def kept(ctx: Any) -> Sequence[Named]:
        return [*own, *((f"saved tensor {place}", tensor) for place, tensor in enumerate(saves.get(ctx, ())))]

    def known() -> Sequence[Named]:
        gradients = [("the gradient of an earlier call", gradient) for gradient in earlier() if gradient is not None]
        return [*own, *(("a saved tensor", tensor) for tensor in packed), *gradients]

    with called_again(nodes, raw, known, subject.counted_backward), tapped(seen.classes, raw, kept):
        yield


# ---- The base call of a subject, which others are compared with: one forward and one backward,
# watched, each made once
STEP = 1e-3     # of each element's size: a detached output that moves depends on the inputs
REPEATS = 2     # further backwards of the base graph
STEADY = 5e-2   # of the largest gradient: more is not the rounding of any dtype


class BaseCall:
    """Measured lazily, once. Properties raise UserCodeError where the user's code raises."""

    def __init__(self, subject: Subject, differentiate: Callable[[Subject, Sequence[int]], Differentiable] = Differentiable) -> None:
        """`differentiate` makes the function whose gradients are looked at; another one than the subject's own is damaged on purpose."""
        self.subject = subject
        self._differentiate = differentiate
        self._saved = Saved()
        self._cotangents = dict[str, tuple[Tensor, ...]]()

    @property
    def settings(self) -> Settings:
        return self.subject.case.settings

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return self.subject.differentiable

    @cached_property
    def empty(self) -> bool:
        """Did the spec ask for a zero size?"""
        return any(argument.is_tensor and argument.value.numel() == 0 for argument in self.subject.arguments)

    @cached_property
    def memory(self) -> Memory:
        """What calls with poisoned memory show, the first of which is the first call of all where this is asked first.
        Raises UserCodeError where forward raises."""
        return measured(self)

    @property
    def poisoned(self) -> Memory:
        """The same as far as it was asked for."""
        return vars(self).get("memory") or Memory()

    @property
    def damaging(self) -> bool:
        """Was it seen to write into memory that is not its own? Then it is not to be called any more."""
        return self.poisoned.beside is not None

    @cached_property
    def forward(self) -> ForwardSeen:
        """One forward, watched."""
        return observe_forward(self.subject, self.settings.outputs, self._saved)

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """The outputs without a graph that the spec names under `outputs`, and that move with the inputs nevertheless."""
        named = [place for place in self.forward.detached if place in (self.settings.outputs or ())]
        if not named:
            return ()
        moved = self.subject.probe([(x + STEP * x.abs().clamp_min(STEP)).detach().requires_grad_() for x in self.subject.inputs])
        return tuple(place for place in named if not same(self.forward.outputs[place], moved[place]))

    @cached_property
    def function(self) -> Differentiable:
        """The checked outputs as a function of the differentiable inputs."""
        function = self._differentiate(self.subject, self.forward.checked)
        function.earlier = self.outputs
        return function

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The checked outputs at the point: copies, as a backward may free or write what forward returned."""
        return tuple(y.detach().clone() for y in self.returned)

    @property
    def odd(self) -> str | None:
        """Which input or output is sparse or nested, in a clause, for rules on strides, memory and modes that such tensors have not."""
        return self.subject.odd if self.forward else None

    @property
    def returned(self) -> tuple[Tensor, ...]:
        """The checked outputs themselves, with their graph and memory."""
        return tuple(self.forward.outputs[place] for place in self.forward.checked)

    @property
    def reseeded(self) -> tuple[Tensor, ...]:
        """The checked outputs of one more forward at the point, whose generators start elsewhere."""
        return self._elsewhere[0]

    @cached_property
    def _elsewhere(self) -> tuple[tuple[Tensor, ...], tuple[object, ...]]:
        """With what the generators would draw next."""
        if self.poisoned.elsewhere is not None:
            return self.poisoned.elsewhere
        return self.subject.seeded_elsewhere(lambda: (tuple(y.detach() for y in self.function.values(self.subject.leaves())), self.subject.states()))

    @cached_property
    def fixed_by_forward(self) -> tuple[int, ...]:
        """The generators (by place in `Seeded.states`) that are in one state after a forward, wherever they start: it seeds them.
        Called once more where it drew."""
        asked = self.forward.random or "_elsewhere" in self.__dict__
        return _alike_places(self.forward.drawn[1], self._elsewhere[1]) if asked and self.settings.reseed else ()

    @cached_property
    def fixed_by_backward(self) -> tuple[int, ...]:
        """The same of backward, called once more where it moved one. Raises UserCodeError."""
        before, after = self.worked.drawn
        if not self.settings.reseed or before == after:
            return ()
        self.function.here()        # a forward that draws is not to be made elsewhere
        again = self.subject.seeded_elsewhere(lambda: (self.function.vjp(self.cotangents("base")), self.subject.states())[1])
        return _alike_places(after, again)

    @property
    def draws(self) -> bool:
        """Does the forward draw random numbers? Also where it puts the generator's state back (`fork_rng`), as far as `reseeded` was asked for."""
        return self.forward.random or ("_elsewhere" in self.__dict__ and self._draws_in_hiding)

    @cached_property
    def _draws_in_hiding(self) -> bool:
        """The outputs are others where the generators start elsewhere, and come again with each of the two starts."""
        if alike(self.outputs, self.reseeded):
            return False
        again = self.subject.seeded_elsewhere(lambda: self.function.values(self.subject.leaves()))
        return alike(self.outputs, self.function.values(self.subject.leaves())) and alike(self.reseeded, [y.detach() for y in again])

    def name_of(self, place: int) -> str:
        """An output by its path: `y0`, or `y.loss` of a dict."""
        names = self.subject.output_names
        return names[place] if place < len(names) else f"y{place}"

    def cotangents(self, purpose: str) -> tuple[Tensor, ...]:
        """Dense random signed cotangents, one per checked output, magnitudes in [0.7, 1.4]: fresh copies, which backward may write into."""
        return tuple(cotangent.clone() for cotangent in self._drawn_cotangents(purpose))

    def _drawn_cotangents(self, purpose: str) -> tuple[Tensor, ...]:
        """Those themselves, which nobody writes into."""
        if purpose not in self._cotangents:
            source = generator(self.settings.seed, self.subject.case.check, f"cotangent {purpose}")
            self._cotangents[purpose] = tuple(signed(output, source) for output in self.outputs)
        return self._cotangents[purpose]

    @cached_property
    def backward(self) -> BackwardSeen:
        """One backward of the base graph, watched, for dense random cotangents."""
        return observe_backward(self.subject, self.forward, self.function, self._drawn_cotangents("base"), self._saved)

    @property
    def worked(self) -> BackwardSeen:
        """The base backward. Raises UserCodeError (GV003) where it raised."""
        if self.backward.error is not None:
            raise self.backward.error
        return self.backward

    @cached_property
    def base(self) -> Graph:
        """The graph of the base forward."""
        return Graph(self.forward.leaves, self.forward.called)

    @cached_property
    def later(self) -> Graph:
        """The graph of a further forward at the point, made when it is first asked for: after a call elsewhere, by the rule on that."""
        return self.function.graph(self.subject.leaves())

    @cached_property
    def repeats(self) -> tuple[Returned, ...] | None:
        """Further backwards of the base graph for the base cotangents; None where a second one is refused. Where they give other gradients,
        every later backward gets a graph of its own: what accumulates in one graph (a buffer on ctx) is GV207's finding, and no other rule's."""
        if not (self.worked.direct and self.function.reusable):
            return None
        try:
            found = tuple(Returned.now(self.function.gradients(self.base, self.worked.cotangents, retain=True)) for _ in range(REPEATS))
        except UserCodeError:
            return None
        if not all(_steady(self.worked.gradients, again.values) for again in found):
            self.function.use_once()
        return found

    @property
    def reusable(self) -> bool:
        """Does the graph of the base call serve further backwards, with the same gradients?"""
        return self.repeats is not None and self.function.reusable

    @cached_property
    def refused(self) -> UserCodeError | None:
        """What a second backward of one graph raises, though the first one retained it; None where it runs, and where it is a forward in between that
        breaks it: the graph is a new one, with nothing in between."""
        if self.repeats is not None or not self.worked.direct:
            return None
        try:
            graph = self.function.graph(self.subject.leaves())
            self.function.gradients(graph, self.worked.cotangents, retain=True)
        except UserCodeError:
            return self.function.refused
        try:
            self.function.gradients(graph, self.worked.cotangents, retain=True)
        except UserCodeError as error:
            return error
        return None

    def forget_repeats(self) -> None:
        """Let go of what identical calls returned, once the rules on these are through: of a large input that is most of what is held."""
        measured = vars(self)
        for name in ("for_ones", "later"):
            measured.pop(name, None)
        if measured.get("repeats"):
            measured["repeats"] = ()
        if "backward" in measured:
            measured["backward"] = replace(self.backward, raw=())
            self._keep_one_graph()
        if "memory" in measured:
            measured["memory"] = replace(self.memory, repeats=(), earliest=None)

    def _keep_one_graph(self) -> None:
        """The graph that backwards share stands for the base graph too, which is let go with what was saved for it."""
        graph = self.function.shared
        if graph is None or not self.reusable:
            return
        nodes = function_nodes(self.function.of(graph))
        self._saved.tensors = []
        forward = replace(self.forward, leaves=graph.leaves, called=graph.called, nodes=nodes, saved=saved_tensors(nodes))
        vars(self).update(base=graph, forward=forward)

    def usable(self) -> Graph:
        """A graph for one more backward: the base graph, or that of a fresh forward. Raises UserCodeError (GV002)."""
        return self.base if self.reusable else self.function.graph(self.subject.leaves())

    @cached_property
    def for_ones(self) -> tuple[tuple[RawReturn, ...], Gradients]:
        """What backward returns for a cotangent of ones, and what becomes of it. Raises UserCodeError."""
        graph, raw = self.usable(), list[RawReturn]()
        base = graph is self.base
        nodes = self.forward.nodes if base else function_nodes(self.function.of(graph))
        saves, packed = (self.forward.saved, self._saved.tensors) if base else (saved_tensors(nodes), [])
        with looked_at(self.subject, self.forward, graph.called, nodes, saves, packed, raw):
            gradients = copied(self.function.gradients(graph, [torch.ones_like(y) for y in self.outputs], retain=True))
        return tuple(raw), gradients

    @cached_property
    def inner_writes(self) -> tuple[Wrote, ...]:
        """What the Functions inside a callable or module write into their own arguments, seen in one more forward."""
        inner = [cls for cls in self.forward.classes if cls is not self.subject.target.subject]
        if not inner:
            return ()
        found = list[Wrote]()
        with watched(inner, found):
            self.subject.probe(self.subject.leaves())
        return tuple(found)


def _steady(first: Gradients, again: Gradients) -> bool:
    """Are these the same gradients, up to rounding?"""
    for a, b in zip(first, again, strict=True):
        if a is None or b is None or not a.layout is b.layout is torch.strided or not a.numel() or not bool(a.isfinite().all()):
            continue
        if float((a - b).abs().nan_to_num(nan=0.0).max()) > STEADY * float(a.abs().max()):
            return False
    return True


def _alike_places(a: Sequence[object], b: Sequence[object]) -> tuple[int, ...]:
    return tuple(place for place, (one, other) in enumerate(zip(a, b, strict=False)) if one == other)
