"""The checked outputs as a function of the differentiable inputs, which the numerics differentiate
(`numerics.function.point.Function`); and its derivatives in torch's other modes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradverify.model.fault import UNWRITTEN
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.graph import every_node, function_nodes
from gradverify.subject.snapshot import Snapshot, alike
from gradverify.subject.snapshot import copied as copied
from gradverify.subject.subject import Cotangents, Subject, Tensors, Way, as_leaves, filled
from gradverify.subject.subject import Gradients as Gradients
from gradverify.subject.subject import Graph as Graph
from gradverify.torch_private import expected_gradients

# ---- The checked outputs as a function of the differentiable inputs
AT_ONCE = 64  # cotangents in one batched backward
HELD = 1 << 22  # numbers in the gradients of such a batch, of all nodes together


class Returned(NamedTuple):
    """Gradients as they were returned, and copies of their values at that time."""

    handed_out: Gradients
    values: Gradients

    @classmethod
    def now(cls, gradients: Gradients) -> Returned:
        return cls(gradients, copied(gradients))


class Differentiable:
    """The checked outputs as a function of the differentiable inputs. `checked`: the indices of the
    compared outputs among the flattened ones.

    VJPs are computed in the subject's `way`: by default they reuse one graph. Where a second
    backward of a graph is refused, each gets a fresh forward; where `torch.autograd.grad` is
    refused, or does not see all gradients (re-entrant checkpoints, reversible nets), `.backward()`
    into the leaves is used. Where backward refuses an undefined cotangent of any output, but not
    zeros (`refuses_none`: the error), zeros are passed from then on.
    """

    def __init__(self, subject: Subject, checked: Sequence[int]) -> None:
        self._subject, self._checked = subject, tuple(checked)
        self.inputs = subject.inputs
        self.shared: Graph | None = None  # the graph of `kept_graph`, if it was made
        # Copies of the outputs of that forward, which a backward may overwrite
        self._here: Tensors = ()
        # Whether other outputs than the compared ones require gradients
        self._others = False
        # Cotangents per batch, 0: one by one; None: not determined yet
        self._at_once: int | None = None
        self.refused: UserCodeError | None = None  # the error for which the way was changed
        self.refuses_none: UserCodeError | None = None
        # The checked outputs of an earlier forward at the inputs
        self.earlier: Tensors | None = None

    def values(self, inputs: Tensors) -> list[Tensor]:
        """Return the checked outputs at other inputs. Raises UserCodeError (GV002)."""

        def called(loud: bool) -> list[Tensor]:
            with self._subject.poisoned(inputs, "forward", loud=loud) as given:
                return self.of(self._subject.called(given))

        outputs = called(True)
        if self._subject.poison is not None and any(bool(y.isnan().any()) for y in outputs):
            for place, y, other in zip(self._checked, outputs, called(False), strict=True):
                if y.shape == other.shape and bool((y.isnan() & ~other.isnan()).any()):
                    raise UserCodeError(
                        UNWRITTEN,
                        f"{self._subject.name_of(place)} depends on unwritten memory, at other "
                        "inputs than those of the check",
                        hint="write every element before it is read",
                    )
        return outputs

    def here(self) -> Tensors:
        """Return copies of the checked outputs at the inputs, of the forward whose graph `vjp`
        uses. Raises UserCodeError (GV002)."""
        self.kept_graph()
        return self._here

    def vjp(self, cotangents: Cotangents, inputs: Tensors | None = None) -> Gradients:
        """Return the gradient per input, None where backward gives none; at other `inputs` on a
        graph of its own. Raises UserCodeError (GV003) where every way is refused."""
        if inputs is not None:
            return self._decided(lambda _: self._at(as_leaves(inputs)), cotangents)
        return self._decided(
            lambda way: self.kept_graph() if way is Way.REUSED else self.graph(),
            cotangents,
            Way.FRESH,
            Way.LEAVES,
            retain=True,
        )

    def _decided(
        self,
        graph: Callable[[Way], Graph],
        cotangents: Cotangents,
        *others: Way,
        retain: bool = False,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> Gradients:
        """Return the gradients of `graph` in the subject's way, or in the first of the `others`
        that is not refused; if all are, try again with zeros for undefined cotangents. Every later
        backward follows the result. Raises the error of the first way."""
        ways = tuple(dict.fromkeys((self._subject.way, *others)))

        def pull(way: Way) -> Gradients:
            return self.gradients(
                graph(way),
                cotangents,
                retain=retain and way is Way.REUSED,
                way=way,
                through=through,
                fresh=True,
            )

        first: UserCodeError | None = None
        for zeros in (False, True):
            if zeros:
                if self.refuses_none is not None or not (
                    self._others or any(cotangent is None for cotangent in cotangents)
                ):
                    break
                self.refuses_none, self.shared = first, None
            for way in ways:
                found = attempted(pull, way)
                if isinstance(found, UserCodeError):
                    first = first or found
                    continue
                if way is not ways[0]:
                    self.refused, self._subject.way, self.shared = first, way, None
                return found
            self.refuses_none = None if zeros else self.refuses_none
        assert first is not None
        raise first

    def vjps(
        self, output: int, cotangents: Tensor, wanted: Sequence[int] | None = None
    ) -> Gradients | None:
        """Return gradients [n, …] of the `wanted` inputs (None: all) for cotangents [n, …] of one
        output, by batched backwards, which count as n; None where batching is not possible.

        Only graphs of torch's own operators are batched: the backward of a Function is called as in
        training.
        """
        if self._at_once == 0 or not self.reusable:
            return None
        graph = self.kept_graph()
        outputs = self.of(graph)
        if self._at_once is None:
            passed = (x for node in every_node(outputs) for x in expected_gradients(node))
            self._at_once = 0
            if not function_nodes(outputs):
                self._at_once = min(AT_ONCE, HELD // max(sum(prod(x.shape) for x in passed), 1))
        if (size := self._at_once) < 2:
            return None
        leaves = None if wanted is None else [graph.leaves[place] for place in wanted]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators that are batched by a loop
            found = tried(
                lambda: [
                    self._subject.pull(
                        graph, [outputs[output]], [some], leaves, retain=True, batch=len(some)
                    )
                    for some in torch.split(cotangents, size)
                ]
            )
        if found is None:  # no batching rule
            self._at_once = 0
            return None
        parts = zip(*found, strict=True)
        return tuple(None if each[0] is None else torch.cat(each) for each in parts)

    def once(
        self, cotangents: Tensors, through: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensors, Gradients]:
        """Return the checked outputs of one fresh forward, and the gradients, each output passed
        `through` a last operation; cotangents are cast to the outputs' dtypes and devices.

        Raises UserCodeError: GV002 where forward raises, GV003 where backward does.
        """
        graph = self.graph()
        # Copied, as backward may overwrite the outputs
        values = copied(self.of(graph))
        pairs = zip(values, cotangents, strict=True)
        fitting = [v.to(device=y.device, dtype=y.dtype) for y, v in pairs]
        graphs = [graph]
        return values, self._decided(
            lambda _: graphs.pop() if graphs else self.graph(), fitting, Way.LEAVES, through=through
        )

    def graph(self, leaves: Tensors | None = None, inputs: Tensors | None = None) -> Graph:
        """Return the graph of a forward at the inputs, or at other `leaves`; `inputs`: computed
        from the leaves, and passed to forward instead. Raises UserCodeError (GV002)."""
        if leaves is None and inputs is None:
            return self._at(self._subject.leaves())
        leaves = self._subject.leaves() if leaves is None else leaves
        graph = self._subject.probed(leaves if inputs is None else inputs)
        self.of(graph)
        return replace(graph, leaves=tuple(leaves))

    def _at(self, leaves: Tensors) -> Graph:
        """Return the graph of a forward at leaves, which may be replaced by copies between guard
        bytes."""
        with self._subject.poisoned(leaves, "forward") as given:
            graph = self._subject.probed([leaf.requires_grad_() for leaf in given])
        self.of(graph)
        return graph

    def kept_graph(self) -> Graph:
        """Return the graph that several backwards share, made at the first call."""
        if self.shared is None:
            self.shared = self.graph()
            here, earlier = self.of(self.shared), self.earlier
            same = earlier if earlier and alike(earlier, here) else None
            self._here = same or copied(here)
        return self.shared

    def of(self, graph: Graph) -> list[Tensor]:
        """Return the checked outputs of a graph. Raises UserCodeError (GV002) where any is missing
        (the number of outputs may depend on the inputs)."""
        outputs, count = graph.outputs, len(graph.outputs)
        picked = [outputs[place] for place in self._checked if place < count]
        if len(picked) < len(self._checked) or not all(isinstance(y, Tensor) for y in picked):
            raise UserCodeError(
                "GV002",
                f"forward returns {count} outputs here, not "
                f"y{max(self._checked, default=0)} as at the first point",
            )
        return picked

    def with_zeros(self, graph: Graph) -> list[Tensor]:
        """Return the outputs that are not compared but need cotangents of zeros, where backward
        refuses undefined ones; none otherwise."""
        others = [
            y
            for place, y in enumerate(graph.outputs)
            if place not in self._checked and isinstance(y, Tensor) and y.requires_grad
        ]
        self._others = bool(others)
        return [] if self.refuses_none is None else others

    def gradients(
        self,
        graph: Graph,
        cotangents: Cotangents,
        *,
        through: Callable[[Tensor], Tensor] | None = None,
        fresh: bool = False,
        **options: Any,
    ) -> Gradients:
        """Return the gradient per leaf, None for one that needs none, in the way that the base
        backward allows; each output passed `through` a last operation. `fresh`: backward may write
        into the cotangents. `options`: of `Subject.pull`.

        Outputs without a graph are left out. Raises UserCodeError (GV003).
        """
        wanted = list[tuple[Tensor, Tensor]]()
        others = self.with_zeros(graph)
        for y, v in zip(self.of(graph), cotangents, strict=True):
            if y.requires_grad and (v is not None or self.refuses_none is not None):
                given = torch.zeros_like(y) if v is None else v if fresh else v.clone()
                wanted.append((through(y) if through else y, given))
        wanted += [(y, torch.zeros_like(y)) for y in others]
        if not wanted or not any(leaf.requires_grad for leaf in graph.leaves):
            return (None,) * len(graph.leaves)
        outputs, passed = [each for each, _ in wanted], [v for _, v in wanted]
        with self._subject.poisoned(passed, "backward", "grad_output") as guarded:
            return self._subject.pull(graph, outputs, guarded, **options)

    def use_once(self) -> None:
        """Use each graph for one backward only from now on, as the first one damages it."""
        if self.reusable:
            self._subject.way, self.shared = Way.FRESH, None

    @property
    def leaf_only(self) -> bool:
        """Whether `torch.autograd.grad` is refused, and `.backward()` into leaves is not."""
        return self._subject.way is Way.LEAVES

    @property
    def reusable(self) -> bool:
        """Whether a graph supports more than one backward, as far as known."""
        return self._subject.way is Way.REUSED


# ---- Forward mode: tangents of the checked outputs by one forward on dual numbers
CODE = "GV108"


class Pushed(NamedTuple):
    """The tangent of each checked output (zeros where it has none), and the indices of the inputs
    whose tangents were written to."""

    tangents: Tensors
    damaged: tuple[int, ...]


def push(
    subject: Subject, checked: Sequence[int], tangents: Cotangents, inputs: Tensors | None = None
) -> Pushed:
    """Return the tangents of the checked outputs for one tangent per differentiable input (None:
    the input is no dual number). `inputs`: used instead of the subject's.

    The inputs do not require grad, as under `torch.func.jvp`. Raises UserCodeError (GV108) for
    errors of the call, with the exception as its cause.
    """
    places = [place for place, tangent in enumerate(tangents) if tangent is not None]
    before = Snapshot([tangent for tangent in tangents if tangent is not None])
    with forward_ad.dual_level():
        primals = copied(subject.inputs if inputs is None else inputs)
        duals = [
            x if tangent is None else forward_ad.make_dual(x, tangent)  # type: ignore[no-untyped-call]
            for x, tangent in zip(primals, tangents, strict=True)
        ]
        found = attempted(subject.called, duals)
        if isinstance(found, UserCodeError):
            raise UserCodeError(
                CODE, f"in forward mode {found.message}", found.frames
            ) from found.__cause__
        pushed = (forward_ad.unpack_dual(found.outputs[place]) for place in checked)  # type: ignore[no-untyped-call]
        seen = tuple(
            torch.zeros_like(y).detach() if tangent is None else tangent.detach().clone()
            for y, tangent in pushed
        )
    return Pushed(seen, tuple(places[i] for i in before.changed()))


# ---- Batched cotangents: one backward that gets several of them as one tensor, as in
# `torch.autograd.functional.jacobian(vectorize=True)`
def batched_gradients(
    subject: Subject,
    function: Differentiable,
    graph: Graph,
    classes: Sequence[type],
    v: Tensors,
    factors: Sequence[float],
) -> Gradients:
    """Return the gradients [n, …] per input, None where there is none, for the cotangents v times
    each of the n factors, by one backward that counts as n.

    Attributes that backward sets on the `classes` of Functions are restored, as batched tensors are
    invalid elsewhere. Attributes of ctx are not, so this is the last use of the graph. Raises
    UserCodeError (GV003).
    """
    cotangents = [torch.stack([factor * cotangent for factor in factors]) for cotangent in v]
    before = {
        cls: {
            name: (value, copy(value) if type(value) in (list, set, dict) else None)
            for name, value in vars(cls).items()
        }
        for cls in classes
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators that are batched by a loop
            return subject.pull(
                graph, function.of(graph), cotangents, retain=True, batch=len(factors)
            )
    finally:
        for cls, attributes in before.items():
            for name in [name for name in vars(cls) if name not in attributes]:
                delattr(cls, name)
            for name, (value, contents) in attributes.items():
                if vars(cls)[name] is not value:
                    setattr(cls, name, value)
                if contents is not None:
                    value.clear()
                    value.extend(contents) if type(value) is list else value.update(contents)


# ---- Double backward: one backward under `create_graph`, and one through that
DOUBLE = "GV109"


class Second(NamedTuple):
    """The derivatives of Σ weights·gradients with respect to each input and each cotangent; None
    where there is none."""

    inputs: Gradients
    cotangents: Gradients


Created = tuple[Graph, Tensors, Gradients]
"""A backward under `create_graph`: the forward's graph, the cotangents, which require grad, and the
gradients."""


class Backward:
    """The function of the inputs (`numerics.function.point.Function`) that backward computes for
    fixed cotangents; its derivative is the double backward."""

    def __init__(
        self,
        subject: Subject,
        function: Differentiable,
        cotangents: Tensors,
        known: Cotangents | None = None,
    ) -> None:
        """`known`: the gradients at the inputs, if an earlier backward has given them."""
        self._subject, self._function, self._known = subject, function, known
        self.cotangents, self.inputs = cotangents, function.inputs
        self._kept: Created | None = None

    def here(self) -> list[Tensor]:
        """Return the gradients at the inputs; one backward, unless they are known. Raises
        UserCodeError."""
        return self.values() if self._known is None else filled(self._known, self.inputs)

    def values(self, inputs: Tensors | None = None) -> list[Tensor]:
        """Return the gradients at other inputs, None replaced by zeros, by one forward and one
        backward. Raises UserCodeError."""
        return filled(self._function.vjp(copied(self.cotangents), inputs), self.inputs)

    def vjp(self, cotangents: Cotangents, inputs: Tensors | None = None) -> list[Tensor]:
        """Return the double backward for one weight per gradient. Raises UserCodeError (GV109)
        where it is refused."""
        weights = filled(cotangents, self.inputs)
        return filled(self.second(weights, inputs).inputs, self.inputs)

    def second(self, weights: Tensors, inputs: Tensors | None = None, keep: bool = False) -> Second:
        """Run one forward, one backward under `create_graph`, and one backward through it, at the
        inputs or at others. Raises UserCodeError (GV109).

        `keep`: whether to keep the graph for `once_more`.
        """
        graph = self._function.graph(None if inputs is None else as_leaves(inputs))
        given = as_leaves(self.cotangents)
        gradients = self._subject.pull(
            graph,
            self._function.of(graph),
            [cotangent.clone() for cotangent in given],
            create=True,
            code=DOUBLE,
            what="backward under create_graph",
        )
        created = graph, given, gradients
        found = self._through(created, weights, retain=keep and self._function.reusable)
        self._kept = created if keep and self._function.reusable else self._kept
        return found

    def once_more(self, weights: Tensors) -> Second:
        """Return the double backward for other weights at the inputs, on the kept graph, which is
        then dropped. The result may be wrong because the graph's first backward changed it. Raises
        UserCodeError (GV109)."""
        kept, self._kept = self._kept, None
        return self.second(weights) if kept is None else self._through(kept, weights)

    def drop_graph(self) -> None:
        """Drop the kept graph, if any."""
        self._kept = None

    def _through(self, created: Created, weights: Tensors, retain: bool = False) -> Second:
        """Run the backward through a backward. The cotangents require grad, and all leaves are
        differentiated by `.backward()`: otherwise `once_differentiable` does not raise, or
        `torch.autograd.grad(allow_unused=True)` prunes the node that raises."""
        graph, given, gradients = created
        leaves, pairs = [*graph.leaves, *given], zip(gradients, weights, strict=True)
        moving = [(g, w) for g, w in pairs if g is not None and g.requires_grad]
        if any(g.layout != torch.strided for g, _ in moving):
            raise UserCodeError(DOUBLE, "a gradient is sparse")
        found: Gradients = (None,) * len(leaves)
        if moving:
            found = self._subject.pull(
                graph,
                [g for g, _ in moving],
                [w for _, w in moving],
                leaves,
                way=Way.LEAVES,
                retain=retain,
                code=DOUBLE,
                what="the double backward",
            )
        return Second(found[: -len(given)], found[-len(given) :])
