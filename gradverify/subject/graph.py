"""What autograd built: the custom Functions in a graph, what their `backward` really returns before
the engine casts and sums it, what their `forward` writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

from gradverify.subject.forms import is_plain
from gradverify.subject.own_code import FunctionMode, Keywords, own_code, wrapped
from gradverify.subject.snapshot import Change, Named, Shared, Snapshot, attributes, copied, shared
from gradverify.torch_private import (
    CPP_FUNCTION,
    CPP_NODE,
    added_arguments,
    apply,
    every_apply,
    expected_gradients,
    function_class,
    function_modes,
    generated_for,
    has_kernel,
    pytree,
    transforms_active,
    without_function_modes,
)

# ---- What the custom Functions of a graph say that they can do
BATCHED = "FuncTorchBatched"  # the dispatch key of register_vmap


def lacking(classes: Sequence[type], *names: str) -> str | None:
    """The first of these Functions that declares none of `names` (jvp; vmap, generate_vmap_rule) of
    its own. The one behind a registered operator declares a vmap rule where the operator has
    one."""
    plain = torch.autograd.Function
    return next(
        (
            shown_name(cls)
            for cls in classes
            if all(getattr(cls, name) is getattr(plain, name) for name in names)
            and not (
                "vmap" in names
                and (generated := generated_for(cls))
                and has_kernel(generated[0], BATCHED)
            )
        ),
        None,
    )


def registered_backward(cls: type) -> Any:
    """What was handed to `register_autograd`, of a Function that torch generated from it; None of
    any other."""
    generated = generated_for(cls)
    return generated[1] if generated else None


def shown_name(cls: type) -> str:
    """The name of the Function, or of the operator that torch generated it for."""
    generated = generated_for(cls)
    return generated[0] if generated else cls.__name__


# ---- What autograd built: the custom Functions in a graph, what their `backward` really returns
# before the engine casts and sums it, what their `forward` writes
Kept = Callable[[Any], Sequence[Named]]


class Edge(NamedTuple):
    """What the engine expects for one tensor argument of a Function; None where it needs no
    gradient. `leaf`: id of the leaf that it is, if any."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    leaf: int | None = None


class RawReturn(NamedTuple):
    """One call of a `backward`: what it returned, `needs` (ctx.needs_input_grad), an edge per
    *tensor* argument of forward, and which gradients lie in memory that others use. `cls`: the
    class, or the name of a Function that is written in C++. Of the Function that torch generates
    for an operator: without the arguments that torch adds."""

    cls: type | str
    returned: tuple[Any, ...]
    needs: tuple[bool, ...]
    edges: tuple[Edge | None, ...]
    shares: tuple[Shared, ...] = ()

    @property
    def name(self) -> str:
        return self.cls if isinstance(self.cls, str) else shown_name(self.cls)


class Wrote(NamedTuple):
    """A tensor argument (`place` among all arguments without ctx) that one call of a `forward`
    changed without returning it."""

    cls: type
    place: int
    differentiable: bool
    change: Change | None


def function_classes(nodes: Sequence[Any]) -> tuple[type, ...]:
    """The torch.autograd.Function classes that nodes are of."""
    return tuple(dict.fromkeys(cls for node in nodes if (cls := function_class(node)) is not None))


def function_nodes(outputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """The nodes of custom Functions in the graph of the outputs, written in Python (they are their
    own ctx) or in C++."""
    return tuple(
        node
        for node in every_node(outputs)
        if function_class(node) is not None or type(node).__name__ == CPP_NODE
    )


def every_node(outputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """All nodes of the graph of the outputs, once each."""
    return nodes_below([output.grad_fn for output in outputs if output.grad_fn is not None])


def nodes_below(roots: Sequence[Any]) -> tuple[Any, ...]:
    """These nodes and all that backward reaches from them, once each."""
    seen: dict[Any, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(following for following, _ in node.next_functions if following is not None)
    return tuple(seen)


@contextmanager
def tapped(classes: Sequence[type], sink: list[RawReturn], kept: Kept) -> Iterator[None]:
    """Inside, every `backward` (or `vjp`) of these classes leaves what it returns in `sink`.
    Restored whatever happens.

    `kept` names the tensors beside its own attributes that a ctx must not return the memory of.
    """

    def recording(cls: type, original: Callable[..., Any]) -> Callable[..., Any]:
        added = added_arguments(cls)

        @own_code
        def recorded(ctx: Any, *cotangents: Any) -> Any:
            returned = wrapped(original, ctx, *cotangents)
            # A list is one gradient for autograd, and refused
            as_tuple = returned if isinstance(returned, tuple) else (returned,)
            # A subclass that inherits or calls this backward leaves its own
            if (function_class(ctx) or cls) is cls:
                shares = shared(as_tuple, cotangents, [*kept(ctx), *attributes(ctx)])
                theirs, needs = as_tuple[: len(as_tuple) - added], tuple(ctx.needs_input_grad)
                sink.append(
                    RawReturn(
                        cls,
                        theirs,
                        needs[: len(needs) - added],
                        tuple(edge_of(*edge) for edge in ctx.next_functions),
                        shares,
                    )
                )
            return returned

        return recorded

    names = [
        (cls, "vjp" if getattr(cls, "vjp", None) is not torch.autograd.Function.vjp else "backward")
        for cls in classes
    ]
    with _patched(names, recording):
        yield


@contextmanager
def watched(classes: Sequence[type]) -> Iterator[list[Wrote]]:
    """Inside, every `forward` of these classes leaves the arguments that it changed in the list.
    Restored whatever happens."""
    sink = list[Wrote]()

    def watching(cls: type, original: Callable[..., Any]) -> Callable[..., Any]:
        takes_ctx = cls.setup_context is torch.autograd.Function.setup_context  # type: ignore[attr-defined]

        @own_code
        def recorded(*arguments: Any) -> Any:
            places = [
                (place, tensor)
                for place, tensor in enumerate(arguments[takes_ctx:])
                if isinstance(tensor, Tensor) and is_plain(tensor)
            ]
            before = Snapshot([tensor for _, tensor in places])
            returned = wrapped(original, *arguments)
            given_back = [id(output) for output in pytree.tree_leaves(returned)]
            for i in before.changed():
                place, tensor = places[i]
                # One that is returned was written in place on purpose
                if id(tensor) not in given_back:
                    sink.append(Wrote(cls, place, tensor.requires_grad, before.difference(i)))
            return returned

        return recorded

    with _patched([(cls, "forward") for cls in classes], watching):
        yield sink


@contextmanager
def _patched(
    names: Sequence[tuple[type, str]],
    wrapper: Callable[[type, Callable[..., Any]], Callable[..., Any]],
) -> Iterator[None]:
    restore: list[Callable[[], None]] = []
    try:
        for cls, name in names:
            own, instead = vars(cls).get(name), wrapper(cls, getattr(cls, name))
            restore.append(
                partial(delattr, cls, name) if own is None else partial(setattr, cls, name, own)
            )
            setattr(cls, name, staticmethod(instead))
        yield
    finally:
        for undo in reversed(restore):
            undo()


def edge_of(node: Any, number: int) -> Edge | None:
    """What a node expects at one of its inputs."""
    if node is None:
        return None
    metadata = expected_gradients(node)[number]
    leaf = getattr(node, "variable", None)
    return Edge(
        tuple(metadata.shape), metadata.dtype, metadata.device, None if leaf is None else id(leaf)
    )


# ---- Functions written in C++: what their backward returns before the engine casts and sums it
WRONG_NUMBER = re.compile(
    r"(function|backward formula for) (.+) returned an incorrect number of gradients \(expected "
    r"(\d+), got (\d+)\)"
)
"""Torch's sentence, of a C++ node and, from 2.14 on, of a registered operator."""
Given = tuple[Tensor | None, ...]


@contextmanager
def called_again(
    nodes: Sequence[Any],
    sink: list[RawReturn],
    kept: Callable[[], Sequence[Named]],
    count: Callable[[], None],
) -> Iterator[None]:
    """Every C++ node that a backward inside reaches is called once more, afterwards, for the same
    cotangents; what it returns is left in `sink`.

    `kept` names, afterwards, the tensors whose memory it must not return; `count` is called before
    each call. A node that can be called only once leaves nothing.
    """
    taken: dict[Any, Given] = {}

    @own_code
    def take(node: Any, cotangents: Given) -> None:
        taken.setdefault(node, copied(cotangents))

    handles = [node.register_prehook(partial(take, node)) for node in nodes if is_native(node)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for node, cotangents in taken.items():
        count()
        with torch.no_grad():
            try:
                returned = node(*cotangents)
            except Exception:  # the engine reported it before
                continue
            returned = returned if isinstance(returned, tuple) else (returned,)
            # The engine asks for gradients of tensor arguments only
            edges = tuple(edge_of(*following) for following in node.next_functions)
            sink.append(
                RawReturn(
                    native_name(node.name()),
                    returned,
                    tuple(edge is not None for edge in edges),
                    edges,
                    shared(returned, cotangents, kept()),
                )
            )


def is_native(node: Any) -> bool:
    return CPP_FUNCTION in node.name()


def native_name(node: str) -> str:
    """`Linear` of a node called `torch::autograd::CppNode<(anonymous namespace)::Linear>`."""
    inner = node.partition(CPP_FUNCTION)[2].rstrip().removesuffix(">").rstrip()
    return inner.replace("(anonymous namespace)::", "").replace(" >", ">")


def wrong_number(message: str) -> tuple[str, int, int] | None:
    """(name, gradients expected, gradients returned) where a C++ node, or a registered operator,
    itself refused what backward returned."""
    found = WRONG_NUMBER.search(message)
    if found is None or (found[1] == "function" and CPP_FUNCTION not in found[2]):
        return None
    name = native_name(found[2]) if found[1] == "function" else "::".join(found[2].split(".")[:2])
    return name, int(found[3]), int(found[4])


# ---- A Function replaced by its forward: a stand-in `ctx`, and its `apply` inside a call answered
# by `forward` itself, under autograd
class StandIn(FunctionCtx):
    """What `forward` and `setup_context` may ask of a ctx: marks and saved tensors are kept, and
    change nothing. What it has no name for is an AttributeError, as for a real one."""

    saved_for_forward: tuple[Any, ...] = ()
    materialize_grads = True

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        """`needs_input_grad`: per argument of forward, as a real ctx has it."""
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What forward saved so far: of both kinds, torch shows that for forward mode."""
        return tuple(self.saved_for_forward or getattr(self, "to_save", ()))

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        return self.saved_tensors


def by_forward(cls: Any, arguments: tuple[Any, ...]) -> Any:
    """What `cls.forward` returns for the arguments of `apply`; `setup_context` is called where the
    class has its own."""
    ctx = StandIn(tuple(isinstance(x, Tensor) and x.requires_grad for x in arguments))
    if cls.setup_context is Function.setup_context:
        return wrapped(cls.forward, ctx, *arguments)
    returned = wrapped(cls.forward, *arguments)
    wrapped(cls.setup_context, ctx, arguments, returned)
    return returned


class Graphs(FunctionMode):
    """Puts the tensors that forwards of Functions computed, with their graphs, in the place of the
    plain ones that torch returns from `apply`, wherever an operation takes one. Both share
    memory."""

    def __init__(self) -> None:
        super().__init__()
        # By the id of the plain one, which is kept alive
        self._of: dict[int, tuple[Tensor, Tensor]] = {}

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        if not self._of:
            return wrapped(func, *args, **named)
        args, named = self.put_back((tuple(args), named))
        return self.put_back(wrapped(func, *args, **named))

    def put_back(self, values: Any) -> Any:
        """The same, each plain tensor replaced by the one with its graph."""
        if self._of:
            return pytree.tree_map(lambda x: self._of[id(x)][1] if id(x) in self._of else x, values)
        return values

    def plain(self, y: Any) -> Any:
        """A plain tensor in the place of one with a graph."""
        if not isinstance(y, Tensor):
            return y
        with without_function_modes():
            plain = y.detach()
        self._of[id(plain)] = plain, y
        return plain


@contextmanager
def forward_of(cls: type, graphs: Graphs) -> Iterator[None]:
    """Inside, what this thread applies of this Function is its forward under autograd, without a
    node of its own. Other Functions are applied, to tensors that have their graphs. Of what leaves
    this context, `graphs.put_back` has the graphs."""
    applying = list[type]()  # the Functions that torch is about to apply for us

    def instead(applied: Any) -> Callable[..., Any] | None:
        if applying and applying[-1] is applied:
            applying.pop()
            return None
        if all(mode is not graphs for mode in function_modes()) or transforms_active():
            return None
        with_gradients = torch.is_grad_enabled()

        @own_code
        def forward(*arguments: Any) -> Any:
            given = graphs.put_back(arguments)
            with torch.set_grad_enabled(with_gradients):
                if applied is cls:
                    returned = by_forward(cls, given)
                else:
                    applying.append(applied)
                    returned = wrapped(apply, applied, given)
            if isinstance(returned, tuple):
                return tuple(map(graphs.plain, returned))
            return graphs.plain(returned)

        return forward

    with graphs, every_apply(instead):
        yield
