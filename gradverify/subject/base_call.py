"""The base call of a subject, which others are compared with: one forward and one backward, watched, each made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.subject.custody import saved_tensors
from gradverify.subject.differentiable import Differentiable, Gradients, Graph, Returned, copied
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import RawReturn, Wrote, function_nodes, tapped, watched
from gradverify.subject.native import called_again
from gradverify.subject.observe import BackwardSeen, ForwardSeen, Saved, kept, known, observe_backward, observe_forward
from gradverify.subject.snapshot import alike, same
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.unwritten import Memory, measured

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
        with (called_again(nodes, raw, lambda: known(self.subject, graph.called, packed, ()), self.subject.counted_backward),
              tapped(self.forward.classes, raw, kept(self.subject, graph.called, saves))):
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
