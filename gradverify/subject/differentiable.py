"""The checked outputs as a function of the differentiable inputs: what the numerics differentiate (`numerics.function.point.Function`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import function_nodes, gradient_numbers
from gradverify.subject.snapshot import Snapshot, alike
from gradverify.subject.subject import Called, Subject, Way
from gradverify.subject.subject import Gradients as Gradients

# ---- The checked outputs as a function of the differentiable inputs: what the numerics
# differentiate (`numerics.function.point.Function`)
AT_ONCE = 64            # cotangents in one batched backward
HELD = 1 << 22          # numbers that the gradients of such a batch have, in all nodes together


@dataclass(frozen=True, slots=True)
class Graph:
    """One forward with its graph: the tensors that gradients are asked for, and what was called."""

    leaves: tuple[Tensor, ...]
    called: Called


@dataclass(frozen=True, slots=True)
class Returned:
    """Gradients as they were handed out, and copies of what they held then."""

    handed_out: Gradients
    values: Gradients

    @classmethod
    def now(cls, gradients: Gradients) -> Returned:
        return cls(gradients, copied(gradients))


def copied(gradients: Gradients) -> Gradients:
    """Gradients in memory of their own: backward may use that of the returned ones again."""
    return tuple(None if gradient is None else gradient.detach().clone() for gradient in gradients)


class Differentiable:
    """`checked` are the places of the compared outputs among the flattened ones.

    VJPs go the subject's `way`: they reuse one graph. Where a second backward of a graph is refused, each gets a fresh forward; where
    `torch.autograd.grad` is refused, or does not see all gradients (re-entrant checkpoints, reversible nets), `.backward()` into the leaves
    is used. Where an undefined cotangent is refused, of an output that is compared or
    of one that is not, and zeros in its place are not (`refuses_none`: what was raised), it gets zeros from then on.
    """

    def __init__(self, subject: Subject, checked: Sequence[int]) -> None:
        self._subject, self._checked = subject, tuple(checked)
        self._graph: Graph | None = None
        self._here: Sequence[Tensor] = ()       # what that forward returned: a backward may write into it
        self._others = False    # outputs that are not compared have gradients too, which are undefined then
        self._at_once: int | None = None    # cotangents of a batch, 0 where they come one by one; None where the graph was not looked at
        self.refused: UserCodeError | None = None       # what the way that was left raised
        self.refuses_none: UserCodeError | None = None
        self.earlier: Sequence[Tensor] | None = None    # what the checked outputs were in another forward at the inputs, before

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._subject.inputs

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The checked outputs at other inputs. Raises UserCodeError (GV002)."""
        return self._picked(self._subject.forward(inputs))

    def here(self) -> Sequence[Tensor]:
        """Copies of the checked outputs at the inputs, of the forward whose graph `vjp` asks. Raises UserCodeError (GV002)."""
        self.kept_graph()
        return self._here

    def vjp(self, cotangents: Sequence[Tensor | None]) -> Gradients:
        """The gradient per input, None where backward gives none. Raises UserCodeError (GV003) where every way is refused."""
        return self._with_zeros(lambda: self._any_way(cotangents), cotangents)

    def _with_zeros(self, pull: Callable[[], Gradients], cotangents: Sequence[Tensor | None]) -> Gradients:
        """`pull()`, and once more with zeros for undefined cotangents where it raised."""
        try:
            return pull()
        except UserCodeError as refused:
            if self.refuses_none is not None or not (self._others or any(cotangent is None for cotangent in cotangents)):
                raise
            self.refuses_none, self._graph = refused, None
            try:
                return pull()
            except UserCodeError:
                self.refuses_none = None
                raise refused from None

    def _any_way(self, cotangents: Sequence[Tensor | None]) -> Gradients:
        try:
            return self._in(self._subject.way, cotangents)
        except UserCodeError as first:
            for way in (Way.FRESH, Way.LEAVES):
                try:
                    result = self._in(way, cotangents)
                except UserCodeError:
                    continue
                self.refused = first
                self._subject.way, self._graph = way, None
                return result
            raise first from None

    def _in(self, way: Way, cotangents: Sequence[Tensor | None], through: Callable[[Tensor], Tensor] | None = None) -> Gradients:
        graph = self.kept_graph() if way is Way.REUSED else self._fresh_graph()
        return self._pulled(graph, cotangents, retain=way is Way.REUSED, way=way, through=through)

    def vjps(self, output: int, cotangents: Tensor, wanted: Sequence[int] | None = None) -> Gradients | None:
        """Gradients [n, …] of the `wanted` inputs (None: of all) for cotangents [n, …] of one output in batched backwards, which count as n; None
        where there are none to be had.

        Only of graphs that torch's own operators make: the backward of a Function is called as training calls it.
        """
        if self._at_once == 0 or not self.reusable:
            return None
        graph = self.kept_graph()
        leaves, outputs = graph.leaves, self._differentiated(graph)
        if self._at_once is None:
            self._at_once = 0 if function_nodes(outputs) else min(AT_ONCE, HELD // max(gradient_numbers(outputs), 1))
        if self._at_once < 2:
            return None
        asked = leaves if wanted is None else [leaves[place] for place in wanted]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # of operators that are batched by a loop
                found = [self._subject.pull(graph.called, [outputs[output]], asked, [some], retain=True, batch=len(some))
                         for some in torch.split(cotangents, self._at_once)]
        except UserCodeError:       # there is no batching rule for it
            self._at_once = 0
            return None
        return tuple(None if each[0] is None else torch.cat(each) for each in zip(*found, strict=True))

    def vjp_at(self, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> Gradients:
        """The gradient at other inputs, on a graph of its own. Raises UserCodeError."""
        def pull() -> Gradients:
            leaves = [x.detach().clone().requires_grad_() for x in inputs]
            return self._pulled(Graph(tuple(leaves), self._subject.called(leaves)), cotangents)

        return self._with_zeros(pull, cotangents)

    def once(self, cotangents: Sequence[Tensor], through: Callable[[Tensor], Tensor] | None = None) -> tuple[list[Tensor], Gradients]:
        """The values of the checked outputs of one fresh forward, and their gradients, each output passed `through` a last operation;
        cotangents are cast to the outputs' dtypes, and brought to their devices.

        Raises UserCodeError: GV002 where forward raises, GV003 where backward does.
        """
        graph = self._fresh_graph()
        outputs = self._differentiated(graph)
        values = [output.detach().clone() for output in outputs[:len(cotangents)]]      # backward may write into what forward returned
        fitting = [cotangent.to(device=output.device, dtype=output.dtype) for output, cotangent in zip(outputs, cotangents, strict=False)]
        try:
            return values, self._pulled(graph, fitting, through=through)
        except UserCodeError as refused:
            try:
                return values, self._in(Way.LEAVES, fitting, through)
            except UserCodeError:
                if not self._others or self.refuses_none is not None or through:
                    raise refused from None
                return values, self._with_zeros(lambda: self._in(Way.FRESH, fitting), cotangents)

    # ---- graphs of a rule's own
    def graph(self, leaves: Sequence[Tensor], inputs: Sequence[Tensor] | None = None) -> Graph:
        """A forward of `inputs`, which may have been computed from the leaves. Raises UserCodeError (GV002)."""
        called = self._subject.probed(leaves if inputs is None else inputs)
        for place in self._checked:
            if place >= len(called.outputs) or not isinstance(called.outputs[place], Tensor):
                raise UserCodeError("GV002", f"forward returned no tensor y{place} this time")
        return Graph(tuple(leaves), called)

    def of(self, graph: Graph) -> list[Tensor]:
        """The checked outputs of a graph."""
        return [graph.called.outputs[place] for place in self._checked]

    def with_zeros(self, graph: Graph) -> list[Tensor]:
        """The outputs of a graph that are not compared, and whose cotangents must be zeros, as backward refuses undefined ones."""
        return [] if self.refuses_none is None else self._beside(graph.called.outputs)

    def gradients(self, graph: Graph, cotangents: Sequence[Tensor], *, retain: bool = False, create: bool = False,
                  through: Callable[[Tensor], Tensor] | None = None, fresh: bool = False, under_modes: bool = False) -> Gradients:
        """The gradient per leaf, None for one that needs none, in the way that the base backward was found to allow; each output passed `through`
        a last operation. `fresh`: backward may write into the cotangents. `under_modes`: as in `Subject.pull`.

        Outputs without a graph are left out. Raises UserCodeError (GV003).
        """
        pairs = zip(self.of(graph), cotangents, strict=True)
        wanted = [(through(output) if through else output, cotangent if fresh else cotangent.clone())
                  for output, cotangent in pairs if output.requires_grad]
        wanted += [(output, torch.zeros_like(output)) for output in self.with_zeros(graph)]
        asked = [leaf for leaf in graph.leaves if leaf.requires_grad]
        if not wanted or not asked:
            return (None,) * len(graph.leaves)
        return self._subject.pull(graph.called, [output for output, _ in wanted], graph.leaves, [cotangent for _, cotangent in wanted],
                                  retain=retain, create=create, under_modes=under_modes)

    def use_once(self) -> None:
        """From now on a graph serves one backward only, as its first one damages it."""
        if self.reusable:
            self._subject.way, self._graph = Way.FRESH, None

    @property
    def leaf_only(self) -> bool:
        """Is `torch.autograd.grad` refused, and leaf `.backward()` not?"""
        return self._subject.way is Way.LEAVES

    @property
    def reusable(self) -> bool:
        """Is a graph good for more than one backward, as far as is known?"""
        return self._subject.way is Way.REUSED

    def _fresh_graph(self) -> Graph:
        leaves = self._subject.leaves()
        return Graph(tuple(leaves), self._subject.probed(leaves))

    @property
    def shared(self) -> Graph | None:
        """`kept_graph`, where there is one already."""
        return self._graph

    def kept_graph(self) -> Graph:
        """The graph that several backwards share."""
        if self._graph is None:
            self._graph = self._fresh_graph()
            here = self._picked(self._graph.called.outputs)
            self._here = self.earlier if self.earlier and alike(self.earlier, here) else [y.detach().clone() for y in here]
        return self._graph

    def _differentiated(self, graph: Graph) -> list[Tensor]:
        """The checked outputs; and behind them the others that have gradients, where these must not be undefined."""
        picked, others = self._picked(graph.called.outputs), self._beside(graph.called.outputs)
        self._others = bool(others)
        return picked + (others if self.refuses_none is not None else [])

    def _beside(self, outputs: Sequence[Any]) -> list[Tensor]:
        """The outputs that are not compared and have gradients."""
        return [y for place, y in enumerate(outputs) if place not in self._checked and isinstance(y, Tensor) and y.requires_grad]

    def _picked(self, outputs: Sequence[Any]) -> list[Tensor]:
        """The checked ones. Raises UserCodeError (GV002) where they are not there (their number may depend on the inputs)."""
        picked = [outputs[place] for place in self._checked if place < len(outputs) and isinstance(outputs[place], Tensor)]
        if len(picked) < len(self._checked):
            raise UserCodeError("GV002", f"forward returns {len(outputs)} outputs here, not y{max(self._checked, default=0)} as at the first point")
        return picked

    def _pulled(self, graph: Graph, cotangents: Sequence[Tensor | None], *, retain: bool = False, way: Way | None = None,
                through: Callable[[Tensor], Tensor] | None = None) -> Gradients:
        outputs = self._differentiated(graph)
        wanted = self._defined([through(y) for y in outputs] if through else outputs, cotangents)
        return self._subject.pull(graph.called, [output for output, _ in wanted], graph.leaves, [cotangent for _, cotangent in wanted],
                                  retain=retain, way=way)

    def _defined(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
        """Outputs with their cotangents: without undefined ones, or with zeros for these. Outputs behind the cotangents have none."""
        given = [*cotangents, *[None] * (len(outputs) - len(cotangents))]
        if self.refuses_none is not None:
            return [(y, torch.zeros_like(y) if v is None else v) for y, v in zip(outputs, given, strict=True)]
        return [(y, v) for y, v in zip(outputs, given, strict=True) if v is not None]


# ---- Forward mode: tangents of the checked outputs by one forward on dual numbers
CODE = "GV108"


@dataclass(frozen=True, slots=True)
class Pushed:
    """The tangent of each checked output (zeros where it has none), and the places of the inputs whose tangents were written to."""

    tangents: tuple[Tensor, ...]
    damaged: tuple[int, ...]


def push(subject: Subject, checked: Sequence[int], tangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> Pushed:
    """The tangents of the checked outputs for one tangent per differentiable input; None: that input is no dual number. `inputs`: other ones.

    The inputs do not require grad, as under `torch.func.jvp`. Raises UserCodeError (GV108) for what the call raises, its cause the exception.
    """
    places = [place for place, tangent in enumerate(tangents) if tangent is not None]
    before = Snapshot([tangent for tangent in tangents if tangent is not None])
    with forward_ad.dual_level():
        try:
            primals = subject.inputs if inputs is None else inputs
            outputs = subject.forward([_dual(x.detach().clone(), tangent) for x, tangent in zip(primals, tangents, strict=True)])
        except UserCodeError as error:
            raise UserCodeError(CODE, f"in forward mode {error.message}", error.frames) from error.__cause__
        seen = tuple(_tangent(outputs[place]) for place in checked)
    return Pushed(seen, tuple(places[i] for i in before.changed()))


def _dual(x: Tensor, tangent: Tensor | None) -> Tensor:
    return x if tangent is None else forward_ad.make_dual(x, tangent)  # type: ignore[no-untyped-call]


def _tangent(output: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(output)  # type: ignore[no-untyped-call]
    return torch.zeros_like(primal).detach() if tangent is None else tangent.detach().clone()


# ---- Batched cotangents: one backward that gets several of them as one tensor, as
# `torch.autograd.functional.jacobian(vectorize=True)` asks it
def batched_gradients(subject: Subject, function: Differentiable, graph: Graph, classes: Sequence[type], v: Sequence[Tensor],
                      factors: Sequence[float]) -> Gradients:
    """The gradients [n, …] per input, None where there is none, for the cotangents v times each of the n factors at once. Counts as n backwards.

    What backward keeps on the `classes` of Functions is forgotten: a batch is no tensor for anybody else. What it keeps on ctx is not, so this is the
    last use of the graph. Raises UserCodeError (GV003).
    """
    cotangents = [torch.stack([factor * cotangent for factor in factors]) for cotangent in v]
    with warnings.catch_warnings(), _forgotten(classes):
        warnings.simplefilter("ignore")     # of operators that are batched by a loop
        return subject.pull(graph.called, function.of(graph), graph.leaves, cotangents, retain=True, batch=len(factors))


@contextmanager
def _forgotten(classes: Sequence[type]) -> Iterator[None]:
    """The attributes of the classes, and what lies in their lists, sets and dicts, are afterwards what they were."""
    before = {cls: {name: (value, _contents(value)) for name, value in vars(cls).items()} for cls in classes}
    try:
        yield
    finally:
        for cls, attributes in before.items():
            for name in [name for name in vars(cls) if name not in attributes]:
                delattr(cls, name)
            for name, (value, contents) in attributes.items():
                if vars(cls)[name] is not value:
                    setattr(cls, name, value)
                if contents is not None:
                    _refill(value, contents)


def _contents(value: Any) -> Any:
    return copy(value) if type(value) in (list, set, dict) else None


def _refill(value: Any, contents: Any) -> None:
    value.clear()
    value.extend(contents) if type(value) is list else value.update(contents)
